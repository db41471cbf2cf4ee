/**
 * The text of a PDF, read in this browser by pdf.js, in a worker. pdf.js is larger than the whole page, and is loaded
 * with the first PDF.
 */
import type { PdfAnswer, PdfRequest } from './pdf-worker.ts';
import workerUrl from './pdf-worker.ts?worker&url';

/** The used part of https://w3c.github.io/trusted-types; lib.dom does not have it yet. */
interface TrustedTypePolicies {
  createPolicy: (
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ) => { createScriptURL: (url: string) => unknown };
}

/**
 * Trusted Types allow a script's address only through a policy, and the content-security policy allows only this
 * policy.
 */
const { trustedTypes }: { trustedTypes?: TrustedTypePolicies } = window as object;
const policy = trustedTypes?.createPolicy('otela-worker', {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError('this is not the worker of pdf.js');
    return url;
  },
});

/** @throws Error if it is not a PDF, or has a password */
export async function pdfText(bytes: Uint8Array, maxChars: number): Promise<{ text: string; pages: number }> {
  const url = policy?.createScriptURL(workerUrl) ?? workerUrl;
  // Only a cast: lib.dom has no trusted addresses for workers.
  const worker = new Worker(url as string, { type: 'module' });
  try {
    const answer = await new Promise<PdfAnswer>((resolve, reject) => {
      worker.addEventListener('message', ({ data }: MessageEvent<object>) => {
        // In a worker, pdf.js also posts messages as if it ran in its own page.
        if ('text' in data || 'error' in data) resolve(data as PdfAnswer);
      });
      worker.addEventListener('error', ({ message }) => reject(new Error(message)));
      worker.postMessage({ bytes, maxChars } satisfies PdfRequest);
    });
    if ('error' in answer) throw new Error(answer.error);
    return answer;
  } finally {
    worker.terminate();
  }
}
