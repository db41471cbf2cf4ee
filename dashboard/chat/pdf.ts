/** The text of a PDF, read in this browser by pdf.js, in a worker: pdf.js is larger than the whole page, and comes with the first PDF. */
import type { PdfAnswer, PdfRequest } from './pdf-worker.ts';
import workerUrl from './pdf-worker.ts?worker&url';

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
  const worker = new Worker(url as string, { type: 'module' });
  try {
    const answer = await new Promise<PdfAnswer>((resolve, reject) => {
      worker.addEventListener('message', ({ data }: MessageEvent<object>) => {
        // In a worker pdf.js speaks, too, as if it were its own page's.
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
