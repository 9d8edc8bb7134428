// The AI SDK: the Responses model of @ai-sdk/openai, the chat model of @ai-sdk/openai-compatible and the Messages model of
// @ai-sdk/anthropic. Prints one JSON object.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

// Warnings go to the standard output: that Messages models without a limit of output are given one.
globalThis.AI_SDK_LOG_WARNINGS = false;
const [baseURL, model] = process.argv.slice(2);
const models = {
  responses: createOpenAI({ baseURL, apiKey: "none" }).responses(model),
  chat: createOpenAICompatible({ name: "gateway", baseURL, apiKey: "none", includeUsage: true })(model),
  messages: createAnthropic({ baseURL, apiKey: "none" })(model),
};
const shown = {};

for (const [name, languageModel] of Object.entries(models)) {
  const cities = [];
  const tools = {
    get_weather: tool({
      description: "The weather",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        cities.push(city);
        return "sunny";
      },
    }),
  };
  const question = { model: languageModel, temperature: 0, maxRetries: 0 };
  const whole = await generateText({ ...question, prompt: "Where does it go?" });

  const parts = [];
  const errors = [];
  const stream = streamText({
    ...question,
    prompt: "Where does it go?",
    onError: ({ error }) => errors.push(String(error)),
  });
  for await (const part of stream.fullStream) parts.push(part.type);

  const loop = streamText({
    ...question,
    prompt: "How is the weather?",
    tools,
    stopWhen: stepCountIs(4),
    onError: ({ error }) => errors.push(String(error)),
  });
  const loopText = await loop.text;
  shown[name] = {
    whole: { text: whole.text, reasoning: whole.reasoningText, usage: whole.usage, finish: whole.finishReason },
    stream: {
      text: await stream.text,
      reasoning: await stream.reasoningText,
      usage: await stream.usage,
      finish: await stream.finishReason,
      parts,
    },
    loop: { text: loopText, cities, steps: (await loop.steps).length, finish: await loop.finishReason },
    errors,
  };
}

console.log(JSON.stringify(shown));
