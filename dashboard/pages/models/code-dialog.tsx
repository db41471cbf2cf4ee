import { useState } from 'react';
import { Link } from 'wouter';
import { gatewayUrl } from '../../api/base-path.ts';
import { t } from '../../texts/index.ts';
import { Copy } from '../../ui/copy.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Code } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';

/** Client programs for a model, ready to paste. */
const LANGUAGES = ['curl', 'Python', 'JavaScript'] as const;
type Language = (typeof LANGUAGES)[number];

/** `url`: the gateway's URL, with `/v1`. */
function snippet(language: Language, model: string, url: string): string {
  // Single quotes are escaped: providers choose model names, and the text is pasted into a shell.
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

const texts = t.models;

/** A program that sends a request to this model. */
export function CodeDialog({ model, close }: { model: string; close: () => void }) {
  const [language, setLanguage] = useState<Language>('curl');
  const text = snippet(language, model, `${gatewayUrl}/v1`);
  return (
    <Dialog title={texts.use(model)} close={close} footer={<Copy text={text} />}>
      <div className="flex flex-col gap-4">
        <Segments
          label={texts.language}
          value={language}
          options={LANGUAGES.map((value) => ({ value, label: value }))}
          choose={setLanguage}
        />
        <Code label={language}>{text}</Code>
        <p className="text-muted text-sm">
          {texts.needsKey}{' '}
          <Link href="/keys" className="text-accent underline underline-offset-2">
            {texts.createKey}
          </Link>
        </p>
      </div>
    </Dialog>
  );
}
