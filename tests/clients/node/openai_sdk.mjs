// openai (npm): both APIs, plain and through the helpers that assemble a reply from its events. Prints one JSON object.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const responsesTool = { type: "function", name: "get_weather", parameters, strict: false };
const chatTool = { type: "function", function: { name: "get_weather", parameters } };
const shown = {};

async function responsesStream(request) {
  const types = [];
  let text = "";
  const stream = client.responses.stream({ model, ...request });
  for await (const event of stream) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const response = await stream.finalResponse();
  return { types, text, response, output_text: response.output_text };
}

shown.whole = await client.responses.create({ model, input: "Where does it go?", temperature: 0 });
shown.streamed = await responsesStream({ input: "Where does it go?", temperature: 0 });
shown.call = await responsesStream({ input: "How is the weather?", tools: [responsesTool] });
const call = shown.call.response.output.find((item) => item.type === "function_call");
shown.answered = await responsesStream({
  input: [
    { role: "user", content: "How is the weather?" },
    ...shown.call.response.output,
    { type: "function_call_output", call_id: call.call_id, output: "sunny" },
  ],
  tools: [responsesTool],
  temperature: 0,
});

const chat = client.chat.completions.stream({
  model,
  messages: [{ role: "user", content: "Where does it go?" }],
  temperature: 0,
  stream_options: { include_usage: true },
});
shown.chat = await chat.finalChatCompletion();

const cities = [];
const runner = client.chat.completions.runTools({
  model,
  stream: true,
  temperature: 0,
  messages: [{ role: "user", content: "How is the weather?" }],
  tools: [
    {
      type: "function",
      function: {
        ...chatTool.function,
        parse: JSON.parse,
        function: ({ city }) => {
          cities.push(city);
          return "sunny";
        },
      },
    },
  ],
});
shown.tools = { content: await runner.finalContent(), cities };

console.log(JSON.stringify(shown));
