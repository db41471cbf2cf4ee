/** `/llms.txt` (https://llmstxt.org): what a language model needs to know to write programs for this gateway. */
import { ENDPOINTS } from '../../../shared/openai/endpoints.ts';

/** @param url of the gateway, without a slash at its end */
export function llmsText(url: string): string {
  const paths = [...new Set(ENDPOINTS.filter(({ method }) => method === 'POST').map(({ path }) => path))].sort();
  return `# OpenTela gateway

> Models on the GPUs of research clusters behind one endpoint, with the APIs of OpenAI and Anthropic. This file is for language models that write programs for this gateway.

## Facts

- The base URL for SDKs of OpenAI is ${url}/v1, and for SDKs of Anthropic ${url}.
- Each request has a key: \`Authorization: Bearer sk-otela-…\`, or \`x-api-key\`. A person creates keys on the page ${url}/#/keys or with \`otela login --gateway ${url}\`. Read the key from an environment variable. Never write it into a program.
- \`GET ${url}/v1/models\` lists the models that the key may use, with \`context_length\`. Use these names: there are no models of OpenAI or Anthropic. \`?state=all\` also lists models that start on request.
- Nodes are jobs of clusters and may end at any time. Stream long answers, and send \`x-otela-resume: 1\` so that another node continues an answer. For many independent requests use \`POST ${url}/v1/batches\`.
- Send the same \`x-otela-session\` with all turns of a conversation. Then they go to the node that has read the earlier turns.
- A request waits while all nodes of its model are busy. A stream then gets comments such as \`: otela queued 3rd\`, which SSE parsers skip.
- Errors have OpenAI's form: \`{"error": {"message", "type", "param", "code"}}\`. 429 has \`Retry-After\`. 404 \`model_not_found\`: no node serves the model. 412: no node fulfills the request's requirements. An error after the beginning of a stream is an event in the stream, and \`[DONE]\` is then missing.
- Engines decide which parameters they support. An engine that lacks an endpoint answers 404.

## Endpoints

${paths.map((path) => `- POST ${path}`).join('\n')}

## Reference

- [OpenAPI description](${url}/openapi.json): all operations with their schemas
- [API reference](${url}/docs): the same, for people
`;
}
