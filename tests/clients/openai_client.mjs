// The npm `openai` client against a running server: node openai_client.mjs BASE_URL [API_KEY].
// LOCKSTEP_NODE_MODULES is the folder in which `npm install openai` was run.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.LOCKSTEP_NODE_MODULES ?? process.cwd(), 'any.js'));
const OpenAI = require('openai').default;

const client = new OpenAI({ baseURL: process.argv[2], apiKey: process.argv[3] ?? 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'in the' }];
const request = { model, messages, max_completion_tokens: 16, seed: 3 };

const whole = await client.chat.completions.create(request);
assert.equal(whole.choices[0].message.role, 'assistant');

let text = '';
let usage = null;
const stream = await client.chat.completions.create({
  ...request, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? '';
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
// The second time the prompt may have been cached; the counts are the same.
assert.equal(usage.total_tokens, whole.usage.total_tokens);

// A seed that the server gave comes back unchanged: it is exact in a double.
const given = await client.chat.completions.create({ model, messages, max_tokens: 8 });
assert.ok(Number.isSafeInteger(given.seed));
const again = await client.chat.completions.create({ model, messages, max_tokens: 8, seed: given.seed });
assert.equal(again.choices[0].message.content, given.choices[0].message.content);

await assert.rejects(
  client.chat.completions.create({ ...request, temperature: -1 }),
  (error) => error.status === 400 && error.code === 'invalid_value' && error.param === 'temperature',
);
console.log('ok');
