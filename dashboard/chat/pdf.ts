/** The text of a PDF, read in this browser by pdf.js, in a worker. Its own file, since pdf.js is larger than the whole page. */
import { GlobalWorkerOptions, getDocument } from 'pdfjs-dist';
import workerUrl from 'pdfjs-dist/build/pdf.worker.min.mjs?url';

/** Longer ones are read up to here. */
const PAGES_MAX = 1_000;

/** As much of https://w3c.github.io/trusted-types as is used; lib.dom has not got it yet. */
interface TrustedTypePolicies {
  createPolicy: (
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ) => { createScriptURL: (url: string) => unknown };
}

/** Trusted Types let a script's address only through a policy, and the content-security policy lets only this one be made. */
const { trustedTypes }: { trustedTypes?: TrustedTypePolicies } = window as object;
const policy = trustedTypes?.createPolicy('otela-worker', {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError('this is not the worker of pdf.js');
    return url;
  },
});

/** @throws Error where it is no PDF, or has a password */
export async function pdfText(bytes: Uint8Array, maxChars: number): Promise<{ text: string; pages: number }> {
  const url = policy?.createScriptURL(workerUrl) ?? workerUrl;
  // Structural: lib.dom has no trusted addresses for workers.
  const port = new Worker(url as string, { type: 'module' });
  GlobalWorkerOptions.workerPort = port;
  try {
    const task = getDocument({ data: bytes, useWasm: false, useSystemFonts: false, disableFontFace: true });
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
    const pages = document.numPages;
    await task.destroy();
    return { text: parts.join('\n\n'), pages };
  } finally {
    port.terminate();
    GlobalWorkerOptions.workerPort = null;
  }
}
