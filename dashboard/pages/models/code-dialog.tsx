import { useState } from 'react';
import { Link } from 'wouter';
import { LANGUAGES, type Language, snippet } from '../../parts/snippets.ts';
import { t } from '../../texts/index.ts';
import { Copy } from '../../ui/copy.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Code } from '../../ui/page.tsx';
import { Segments } from '../../ui/segments.tsx';

const texts = t.models;

/** A program that asks this model. */
export function CodeDialog({ model, close }: { model: string; close: () => void }) {
  const [language, setLanguage] = useState<Language>('curl');
  const text = snippet(language, model, `${location.origin}/v1`);
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
