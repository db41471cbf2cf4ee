/** Files in results that lines of functions get: nodes read them as the files that a line names itself. */
import { LINE_FILES_MAX, readLineFiles } from '../../../shared/batch/function-files.ts';
import { lineBody, memberText, withMember } from '../../../shared/batch/line-body.ts';
import type { ResultFile } from '../../../shared/batch/line-references.ts';
import { concat } from '../../../shared/collections/concat.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import type { ResolvedLine } from './append-lines.ts';
import type { WaitingLines } from './waiting-lines.ts';

/** A result as a member of a line's input. The Python library on the node replaces each of the files by a File. */
export function functionValue(value: string, files: readonly ResultFile[]): string {
  if (files.length === 0) return `{"$otela_value":${value}}`;
  return `{"$otela_value":${value},"files":${JSON.stringify(files.map(({ id, name }) => [id, name]))}}`;
}

/** The line with these ids in its `body.files`; undefined: they are too many. */
export function withLineFiles(line: string, ids: ReadonlySet<string>): string | undefined {
  if (ids.size === 0) return line;
  const bytes = new TextEncoder().encode(line);
  const body = lineBody(bytes);
  if (body === undefined) return undefined;
  const text = new TextDecoder().decode(body);
  const own = readLineFiles(tryParseJson(memberText(text, 'files') ?? 'null')) ?? [];
  const all = [...new Set([...own, ...ids])];
  if (all.length > LINE_FILES_MAX) return undefined;
  const start = body.byteOffset - bytes.byteOffset;
  const made = new TextEncoder().encode(withMember(text, 'files', JSON.stringify(all)));
  return new TextDecoder().decode(concat([bytes.subarray(0, start), made, bytes.subarray(start + body.length)]));
}

/** The files of a line that no line of the batch had before. */
export function newFiles(line: ResolvedLine, waiting: WaitingLines): string[] {
  return 'files' in line ? (line.files ?? []).filter((id) => !waiting.hasFile(id)) : [];
}
