import DOMPurify, { type Config } from 'dompurify';
import { Marked } from 'marked';
import { useEffect, useRef } from 'preact/hooks';
import { canCopy } from './ui.tsx';

/** Markup in an answer is shown as it stands: an answer about HTML is read, not run. */
const markdown = new Marked({
  async: false,
  gfm: true,
  breaks: true,
  renderer: { html: ({ text }) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`) },
});

/** A model's words are nobody's code: no markup that acts, no request to anywhere. */
const CLEAN = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ['img', 'video', 'audio', 'style', 'form', 'input', 'button', 'iframe'],
  FORBID_ATTR: ['style', 'srcset', 'background'],
  RETURN_DOM_FRAGMENT: true as const,
} satisfies Config & { RETURN_DOM_FRAGMENT: true };

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

export function Markdown({ text }: { text: string }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const div = ref.current;
    if (div === null) return;
    div.replaceChildren(DOMPurify.sanitize(markdown.parse(text, { async: false }), CLEAN));
    if (canCopy()) for (const block of div.querySelectorAll('pre')) block.append(copyButton(block));
  }, [text]);
  return <div ref={ref} class="markdown" />;
}

function copyButton(block: HTMLElement): HTMLElement {
  const button = document.createElement('button');
  const code = block.textContent ?? '';
  button.type = 'button';
  button.className = 'small copy';
  button.textContent = 'Copy';
  block.tabIndex = 0;
  button.addEventListener('click', () => void navigator.clipboard.writeText(code));
  return button;
}
