import { Marked } from 'marked';
import { memo } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';

const splitter = new Marked({ gfm: true });

/** Top-level blocks: of a growing text only the last one changes, so that only it is parsed again. */
function blocksOf(text: string): string[] {
  return splitter.lexer(text).map(({ raw }) => raw);
}

/** No pictures: they would ask another host. Raw markup is shown as it stands: an answer about HTML is read, not run. */
const COMPONENTS: Components = {
  img: ({ alt, src }) => <span>{alt || src}</span>,
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
};

const Block = memo(({ text }: { text: string }) => (
  <ReactMarkdown remarkPlugins={[remarkGfm]} components={COMPONENTS}>
    {text}
  </ReactMarkdown>
));

/** What a model wrote, as React elements: no markup of it reaches the page as markup. */
export function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      {blocksOf(text).map((block, n) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: blocks are only added behind
        <Block key={n} text={block} />
      ))}
    </div>
  );
}
