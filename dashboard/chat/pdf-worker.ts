/** Reads a PDF by pdf.js, in a worker of its own: a long one must not hold up the page. One document, one answer. */
import { getDocument } from 'unpdf/pdfjs';

/** Longer ones are read up to here. */
const PAGES_MAX = 1_000;

export interface PdfRequest {
  bytes: Uint8Array;
  maxChars: number;
}
export type PdfAnswer = { text: string; pages: number } | { error: string };

async function pdfText({ bytes, maxChars }: PdfRequest): Promise<PdfAnswer> {
  const task = getDocument({ data: bytes, useSystemFonts: false, disableFontFace: true });
  const document = await task.promise;
  const parts: string[] = [];
  let length = 0;
  for (let n = 1; n <= Math.min(document.numPages, PAGES_MAX) && length <= maxChars; n++) {
    const page = await document.getPage(n);
    const { items } = await page.getTextContent();
    const text = items.map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : '')).join('');
    parts.push(text);
    length += text.length;
    page.cleanup();
  }
  return { text: parts.join('\n\n'), pages: document.numPages };
}

addEventListener('message', ({ data }: MessageEvent<PdfRequest>) => {
  pdfText(data).then(postMessage, (error: unknown) =>
    postMessage({ error: error instanceof Error ? error.message : String(error) } satisfies PdfAnswer),
  );
});
