import { useEffect, useState } from 'react';
import { t } from '../../texts/index.ts';
import { Copy } from '../../ui/copy.tsx';
import type { Token } from './highlighter.ts';

/** Interval of highlighting code that grows: short enough to look live, long enough not to drop frames. */
const HIGHLIGHT_MS = 400;

/** Code with its language and a button to copy it. It is plain until its colors are ready. */
export function CodeBlock({ code, language }: { code: string; language: string }) {
  const [done, setDone] = useState<{ code: string; lines: Token[][] }>();
  const isFirst = done === undefined;
  useEffect(() => {
    let isGone = false;
    const timer = setTimeout(
      async () => {
        // Shiki is loaded with the first code block.
        const { highlight } = await import('./highlighter.ts');
        const lines = await highlight(code, language).catch(() => undefined);
        if (!isGone && lines !== undefined) setDone({ code, lines });
      },
      isFirst ? 0 : HIGHLIGHT_MS,
    );
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [code, language, isFirst]);
  // Text after the highlighted part is plain.
  const colored = done !== undefined && code.startsWith(done.code) ? done : undefined;
  return (
    <figure className="code-block overflow-hidden rounded-md border border-line bg-sunken">
      <figcaption className="flex h-9 items-center justify-between border-line border-b pr-1 pl-3 text-muted text-xs">
        <span>{language || 'text'}</span>
        <Copy icon label={t.chat.copyCode} text={code} />
      </figcaption>
      <section aria-label={language || 'text'} tabIndex={0} className="overflow-x-auto">
        <pre className="w-max min-w-full px-4 py-3 text-sm leading-relaxed">
          <code>
            {colored?.lines.map((line, n) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other key
              <Line key={n} tokens={line} isLast={n === colored.lines.length - 1} />
            ))}
            {code.slice(colored?.code.length ?? 0)}
          </code>
        </pre>
      </section>
    </figure>
  );
}

function Line({ tokens, isLast }: { tokens: Token[]; isLast: boolean }) {
  return (
    <>
      {tokens.map(({ text, className }, n) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: tokens have no other key
        <span key={n} className={className || undefined}>
          {text}
        </span>
      ))}
      {isLast ? '' : '\n'}
    </>
  );
}
