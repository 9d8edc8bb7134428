// @anthropic-ai/sdk: plain calls, the stream helper, a tool round trip by hand and the tool runner. Prints one JSON object.
import Anthropic from "@anthropic-ai/sdk";

const [baseURL, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "none", maxRetries: 0 });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = { name: "get_weather", description: "The weather", input_schema };
const asked = { model, max_tokens: 200, temperature: 0, messages: [{ role: "user", content: "Where does it go?" }] };
const question = { role: "user", content: "How is the weather?" };
const shown = {};

async function streamed(request) {
  const types = [];
  let text = "";
  const stream = client.messages.stream(request);
  stream.on("text", (piece) => (text += piece));
  for await (const event of stream) types.push(event.type);
  return { types, text, message: await stream.finalMessage() };
}

shown.whole = await client.messages.create(asked);
shown.streamed = await streamed(asked);
shown.call = await streamed({ ...asked, messages: [question], tools: [weather] });
const call = shown.call.message.content.find((block) => block.type === "tool_use");
shown.answered = await streamed({
  ...asked,
  tools: [weather],
  messages: [
    question,
    { role: "assistant", content: shown.call.message.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "sunny" }] },
  ],
});

const cities = [];
const runner = client.beta.messages.toolRunner({
  ...asked,
  messages: [question],
  stream: true,
  tools: [
    {
      ...weather,
      parse: (input) => input,
      run: ({ city }) => {
        cities.push(city);
        return "sunny";
      },
    },
  ],
});
const turns = [];
for await (const turn of runner) turns.push((await turn.finalMessage()).stop_reason);
shown.runner = { turns, cities, message: await runner.done() };

console.log(JSON.stringify(shown));
