/**
 * Reads a PDF with pdf.js, in a separate worker: a long PDF must not block the page. It takes one document and posts
 * one answer.
 */
import { getDocument } from 'unpdf/pdfjs';

/** Maximum number of pages that are read. */
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
