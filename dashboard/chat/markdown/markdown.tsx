import { Component, memo, type ReactNode, useMemo, useState } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';
import remend from 'remend';
import { t } from '../../texts/index.ts';
import { blocksOf, isTooIntricate } from './blocks.ts';
import { chunksOf } from './chunks.ts';
import { CodeBlock } from './code-block.tsx';
import { Formula } from './formula.tsx';
import { withMathFences } from './math-fences.ts';

function textOf(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  return Array.isArray(node) ? node.map(textOf).join('') : '';
}

const COMPONENTS: Components = {
  // No pictures: they would be requested from another host and show it that the answer was read.
  img: ({ alt, src }) => <span>{alt || (typeof src === 'string' ? src : '')}</span>,
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ className = '', children }) => {
    const text = textOf(children);
    if (className.includes('math-display')) return <Formula tex={text} display />;
    if (className.includes('math-inline')) return <Formula tex={text} display={false} />;
    const language = /language-(\S+)/.exec(className)?.[1];
    if (language === undefined && !text.includes('\n')) return <code>{children}</code>;
    return <CodeBlock code={text.replace(/\n$/, '')} language={language ?? ''} />;
  },
  table: ({ children }) => (
    <div className="overflow-x-auto rounded-md border border-line">
      <table className="w-full text-sm [&_td]:border-line [&_td]:border-t [&_td]:px-3 [&_td]:py-1.5 [&_th]:bg-sunken [&_th]:px-3 [&_th]:py-1.5 [&_th]:text-left [&_th]:font-semibold">
        {children}
      </table>
    </div>
  ),
  input: ({ checked }) => (
    <input
      aria-label={checked === true ? t.chat.taskDone : t.chat.taskOpen}
      type="checkbox"
      checked={checked === true}
      readOnly
      disabled
      className="mr-2"
    />
  ),
};

const PLUGINS = [remarkGfm, remarkMath];

/**
 * A slice keeps the whole string that it was cut from. In an answer that grows, each part would keep another complete
 * version of it.
 */
const ownCopy = (text: string): string => structuredClone(text);

const INLINE_COMPONENTS: Components = { ...COMPONENTS, p: ({ children }) => <>{children}</> };

const Part = memo(({ text, inline }: { text: string; inline: boolean }) => (
  <ReactMarkdown remarkPlugins={PLUGINS} components={inline ? INLINE_COMPONENTS : COMPONENTS}>
    {text}
  </ReactMarkdown>
));

interface MarkdownProps {
  text: string;
  /**
   * True while more text follows. Markup that is still open in the last block is then rendered as if it were closed.
   */
  streaming?: boolean;
}

function Plain({ text }: { text: string }) {
  return <p className="whitespace-pre-wrap break-words">{text}</p>;
}

/**
 * Wraps a part: if its parser fails, the part is shown unparsed. Otherwise a text that breaks the page would break it
 * at each visit.
 */
class OrPlain extends Component<{ text: string; children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? <Plain text={this.props.text} /> : this.props.children;
  }
}

const Chunk = memo(({ text, streaming = false }: MarkdownProps) => {
  const blocks = useMemo(
    () =>
      isTooIntricate(text) ? undefined : blocksOf(withMathFences(text, streaming)).map((pieces) => pieces.map(ownCopy)),
    [text, streaming],
  );
  if (blocks === undefined) return <Plain text={text} />;
  const last = blocks.at(-1);
  return blocks.map((pieces, n) => {
    const parts = pieces.map((piece, at) => {
      const grows = streaming && pieces === last && at === pieces.length - 1;
      // biome-ignore lint/suspicious/noArrayIndexKey: parts are only appended
      return <Part key={`${n}.${at}`} text={grows ? remend(piece) : piece} inline={pieces.length > 1} />;
    });
    if (pieces.length === 1) return parts;
    // A rendered piece has lost the space at its end, so it is added again.
    // biome-ignore lint/suspicious/noArrayIndexKey: blocks are only appended
    return <p key={n}>{parts.flatMap((part) => [part, ' '])}</p>;
  });
});

/** A model's output as React elements: no markup in it reaches the page as HTML. */
export function Markdown({ text, streaming = false }: MarkdownProps) {
  const [known, setKnown] = useState<readonly string[]>([]);
  const chunks = useMemo(() => chunksOf(text, known), [text, known]);
  if (chunks.length > known.length) setKnown(chunks.map(ownCopy));
  return (
    <div className="markdown">
      {chunks.map((chunk, n) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: chunks are only appended
        <OrPlain key={n} text={chunk}>
          <Chunk text={chunk} streaming={streaming && n === chunks.length - 1} />
        </OrPlain>
      ))}
    </div>
  );
}

export default memo(Markdown);
