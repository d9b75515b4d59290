// OpenAI's client for JavaScript against the base URL in argv[2]; prints what it got, as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "x", maxRetries: 0 });
const asked = { model: "toy", messages: [{ role: "user", content: "Say something of lakes" }] };
const bounds = { max_tokens: 8, temperature: 0 };

const whole = await client.chat.completions.create({ ...asked, ...bounds });
let streamed = "";
const stream = await client.chat.completions.create({ ...asked, ...bounds, stream: true });
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta.content ?? "";
}

const parameters = {
  type: "object",
  properties: { n: { enum: [1, 2] } },
  required: ["n"],
  additionalProperties: false,
};
const runner = client.chat.completions.runTools({
  ...asked,
  max_tokens: 200,
  temperature: 0,
  tool_choice: { type: "function", function: { name: "count" } },
  tools: [
    {
      type: "function",
      function: {
        name: "count",
        parameters,
        strict: true,
        function: ({ n }) => `${n}`,
        parse: JSON.parse,
      },
    },
  ],
});
const called = await runner.finalFunctionToolCallResult();

const response = await client.responses.create({
  model: "toy",
  input: asked.messages[0].content,
  max_output_tokens: 8,
  temperature: 0,
});
const vectors = await client.embeddings.create({ model: "toy", input: ["a lake", "x"] });
const refusal = await client.chat.completions
  .create({ ...asked, model: "gpt-x" })
  .catch((error) => ({ name: error.constructor.name, status: error.status, code: error.code }));
const models = [];
for await (const model of client.models.list()) {
  models.push(model.id);
}
console.log(
  JSON.stringify({
    whole: whole.choices[0].message.content,
    streamed,
    called,
    response: response.output_text,
    vectors: vectors.data.map((each) => each.embedding),
    refusal,
    models,
  }),
);
