/** Offers a text as a download. */
export function saveAsFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser takes the URL during this task.
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
