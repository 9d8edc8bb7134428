// @openai/agents: a tool loop over both APIs, whole and streamed. Prints one JSON object.
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
setTracingDisabled(true);
const shown = {};

for (const name of ["responses", "chat"]) {
  const cities = [];
  const agent = new Agent({
    name: "Guide",
    model,
    modelSettings: { temperature: 0 },
    tools: [
      tool({
        name: "get_weather",
        description: "The weather",
        parameters: z.object({ city: z.string() }),
        execute: async ({ city }) => {
          cities.push(city);
          return "sunny";
        },
      }),
    ],
  });
  const runner = new Runner({
    modelProvider: new OpenAIProvider({ baseURL, apiKey: "none", useResponses: name === "responses" }),
    tracingDisabled: true,
  });
  const whole = await runner.run(agent, "How is the weather?");
  const streamed = await runner.run(agent, "How is the weather?", { stream: true });
  let text = "";
  for await (const event of streamed.toTextStream()) text += event;
  await streamed.completed;
  shown[name] = { whole: whole.finalOutput, streamed: streamed.finalOutput, text, cities };
}

console.log(JSON.stringify(shown));
