/** Programs that ask a model, to be pasted as they are. */
export const LANGUAGES = ['curl', 'Python', 'JavaScript'] as const;
export type Language = (typeof LANGUAGES)[number];

/** `url`: the gateway's, with `/v1`. */
export function snippet(language: Language, model: string, url: string): string {
  // Names are providers' words, and this is to be pasted into a shell.
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }).replaceAll("'", `'\\''`);
  switch (language) {
    case 'curl':
      return `curl ${url}/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \\\n  -H 'Content-Type: application/json' -d '${body}'`;
    case 'Python':
      return `from openai import OpenAI\nclient = OpenAI(base_url=${JSON.stringify(url)})\nanswer = client.chat.completions.create(model=${JSON.stringify(model)}, messages=[{"role": "user", "content": "Hello"}])\nprint(answer.choices[0].message.content)`;
    case 'JavaScript':
      return `import OpenAI from 'openai';\nconst client = new OpenAI({ baseURL: ${JSON.stringify(url)} });\nconst answer = await client.chat.completions.create({ model: ${JSON.stringify(model)}, messages: [{ role: 'user', content: 'Hello' }] });\nconsole.log(answer.choices[0].message.content);`;
  }
}
