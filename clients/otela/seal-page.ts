/**
 * The page of `otela seal`: a chat. Its JavaScript comes from this machine, and not from the gateway, which must not
 * read the chat.
 */
import { createHash } from 'node:crypto';

const SCRIPT = `
const $ = (id) => document.getElementById(id);
const messages = [];
const show = (who, text) => {
  const line = document.createElement('p');
  line.className = who;
  line.textContent = text;
  $('log').append(line);
  return line;
};
const headers = () => ({ authorization: 'Bearer ' + $('key').value, 'content-type': 'application/json' });
$('key').addEventListener('change', async () => {
  const answer = await fetch('/v1/models', { headers: headers() });
  if (!answer.ok) return void ($('state').textContent = 'The gateway does not accept this key: HTTP ' + answer.status);
  const { data } = await answer.json();
  $('models').replaceChildren(...data.map(({ id }) => new Option(id, id)));
  $('state').textContent = data.length + ' models';
});
$('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const content = $('say').value.trim();
  if (content === '') return;
  $('say').value = '';
  $('send').disabled = true;
  show('user', content);
  messages.push({ role: 'user', content });
  const line = show('assistant', '');
  try {
    const body = JSON.stringify({ model: $('models').value, messages, stream: true });
    const answer = await fetch('/v1/chat/completions', { method: 'POST', headers: headers(), body });
    if (!answer.ok) throw new Error(await answer.text());
    const mode = answer.headers.get('x-otela-sealed');
    $('state').textContent = 'Sealed to ' + answer.headers.get('x-otela-node') + ' of ' + answer.headers.get('x-otela-provider') +
      (mode === 'pinned' ? ': its provider vouches for the key.' : ': only the gateway vouches for the key.');
    let rest = '';
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + piece).split('\\n');
      rest = lines.pop();
      for (const one of lines) {
        if (!one.startsWith('data: ') || one === 'data: [DONE]') continue;
        const { choices, error } = JSON.parse(one.slice(6));
        if (error) throw new Error(error.message);
        line.textContent += choices?.[0]?.delta?.content ?? '';
      }
    }
    messages.push({ role: 'assistant', content: line.textContent });
  } catch (error) {
    show('error', String(error.message ?? error));
    messages.pop();
  }
  $('send').disabled = false;
});
`;

const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
p { white-space: pre-wrap; overflow-wrap: anywhere } .user { font-weight: 600 } .error { color: #c00 }
form, fieldset { display: flex; gap: .5rem; border: 0; padding: 0; margin: 1rem 0 } textarea { flex: 1 } input, select { min-width: 0; flex: 1 }
small { opacity: .75 }`;

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': `default-src 'none'; connect-src 'self'; script-src ${hashOf(SCRIPT)}; style-src ${hashOf(STYLE)}; form-action 'none'; base-uri 'none'; frame-ancestors 'none'`,
} as const;

const escaped = (text: string) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param providers the pinned providers; undefined: none */
export function pageText(gateway: string, providers: readonly string[] | undefined): string {
  const trust =
    providers === undefined
      ? 'No provider is pinned: a gateway that lies about keys can read the chat.'
      : `Only nodes of ${providers.join(', ')} can decrypt the chat; their root keys are pinned.`;
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>otela seal</title><style>${STYLE}</style></head>
<body><h1>Sealed chat</h1>
<p>Your messages go sealed through ${escaped(gateway)}. ${escaped(trust)} <small>The node that answers can read them. The gateway sees your key, the model, sizes and times. This page stores nothing: a reload deletes the chat.</small></p>
<fieldset><input id="key" type="password" placeholder="your key for the gateway" autocomplete="off" aria-label="key"><select id="models" aria-label="model"></select></fieldset>
<p id="state" role="status"></p><div id="log" aria-live="polite"></div>
<form id="form"><textarea id="say" rows="3" aria-label="message"></textarea><button id="send">Send</button></form>
<script>${SCRIPT}</script></body></html>`;
}
