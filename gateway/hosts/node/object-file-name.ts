/** Maps names of objects to file names. Two objects of a class never share a file. */
import { createHash } from 'node:crypto';

/** Maximum characters of a readable file name. Longer names are hashed, because a file name has at most 255 bytes. */
const FILE_NAME_MAX = 150;
const END = '.sqlite';
const HASHED_END = '.hash.sqlite';

/** Returns the file name, which is readable if the object's name allows it. */
export function fileName(name: string): string {
  const readable = encodeURIComponent(name).replace(/[.*~!'()]/g, (char) => `%${char.charCodeAt(0).toString(16)}`);
  if (readable.length <= FILE_NAME_MAX && readable !== '') return `${readable}${END}`;
  return `${createHash('sha256').update(name).digest('hex')}${HASHED_END}`;
}

/** Returns the object to which a file belongs; undefined if the file name is a hash. */
export function objectName(file: string): string | undefined {
  if (!file.endsWith(END) || file.endsWith(HASHED_END)) return undefined;
  return decodeURIComponent(file.slice(0, -END.length));
}
