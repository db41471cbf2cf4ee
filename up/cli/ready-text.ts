/** What `otela up` prints when the model answers. */
import type { FirstToken } from '../job/first-token.ts';

interface Access {
  url: string;
  key: string;
  model: string;
}

interface Ready extends Access {
  first: FirstToken;
  /** Seconds from the command to the first token. */
  seconds: number;
}

export function readyText({ url, key, model, first, seconds }: Ready): string {
  const mock = first.isMock
    ? '\nThe mock engine of OpenTela answers. It repeats words from a fixed list; it is not a language model.\n'
    : '';
  return `${model} answers: first token after ${Math.round(seconds)} s, ${Math.round(first.ms)} ms of them in the model's request.
${mock}
${accessText({ url, key, model })}

Ctrl-C closes this connection; the job continues, and the same command comes back to it. otela down ends it.`;
}

/** For `--cold`: a request starts the model's job. */
export function coldText(access: Access): string {
  return `${access.model} starts with the first request, which waits for it.

${accessText(access)}

Ctrl-C closes this connection: then no request starts a job. otela down ends everything.`;
}

function accessText({ url, key, model }: Access): string {
  return `  URL      ${url}/v1
  API key  ${key}
  chat     ${url}/ takes the same key

  export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=${key}

  curl -N ${url}/v1/chat/completions -H 'Authorization: Bearer ${key}' \\
    -H 'Content-Type: application/json' \\
    -d '{"model":"${model}","stream":true,"messages":[{"role":"user","content":"Hello"}]}'`;
}

/** For programs. */
export function accessJson({ url, key, model }: Access): string {
  return JSON.stringify({ url: `${url}/v1`, api_key: key, model });
}
