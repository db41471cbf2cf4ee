/** Hands a text to the browser's downloads. */
export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // A browser takes it in this turn.
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
