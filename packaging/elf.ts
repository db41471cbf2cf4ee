/**
 * The parts of ELF that a single file needs: reading the machine of a program and the versions of its libraries, and
 * adding a note. Only for 64 bits, little-endian: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html,
 * chapters 4 and 5; versions of symbols: LSB Core, chapter 11.7.
 */

const MACHINES: Record<number, string> = { 62: 'x64', 183: 'arm64' };
const [PT_LOAD, PT_DYNAMIC, PT_NOTE] = [1, 2, 4];
const [DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM] = [5, 0x6ffffffe, 0x6fffffff];
const PF_WRITE = 2;
/** Notes are aligned to 4 bytes, even in 64-bit files. */
const NOTE_ALIGN = 4;

interface Segment {
  type: number;
  flags: number;
  /** Offset of the segment in the file. */
  offset: number;
  /** Address of the segment in memory. */
  address: number;
  fileBytes: number;
  /** Size in memory. Bytes beyond `fileBytes` are zeros. */
  memoryBytes: number;
  /** Offset of the segment's program header in the file. */
  header: number;
}

/**
 * The machine that runs a program, in the form of Node's `process.arch`.
 *
 * @throws Error if it is not a program for a known machine
 */
export function machineOf(program: Buffer): string {
  const [CLASS_64, LITTLE_ENDIAN] = [2, 1];
  const isElf = program.length > 64 && program.readUInt32BE(0) === 0x7f454c46;
  const machine = MACHINES[isElf ? program.readUInt16LE(18) : -1];
  if (machine === undefined || program[4] !== CLASS_64 || program[5] !== LITTLE_ENDIAN)
    throw new Error(`not an ELF program for ${Object.values(MACHINES).join(' or ')}`);
  return machine;
}

function segmentsOf(program: Buffer): Segment[] {
  machineOf(program);
  const [first, size, count] = [long(program, 32), program.readUInt16LE(54), program.readUInt16LE(56)];
  return Array.from({ length: count }, (_, index) => {
    const header = first + index * size;
    return {
      header,
      type: program.readUInt32LE(header),
      flags: program.readUInt32LE(header + 4),
      offset: long(program, header + 8),
      address: long(program, header + 16),
      fileBytes: long(program, header + 32),
      memoryBytes: long(program, header + 40),
    };
  });
}

/** Versions of symbols that the dynamic linker must find, by library: `libc.so.6` → `GLIBC_2.28`, … */
export function neededVersions(program: Buffer): Map<string, string[]> {
  const segments = segmentsOf(program);
  const dynamic = new Map<number, number>();
  const table = only(segments, PT_DYNAMIC);
  for (let at = table.offset; at < table.offset + table.fileBytes; at += 16)
    dynamic.set(long(program, at), long(program, at + 8));
  const needs = new Map<string, string[]>();
  if (!dynamic.has(DT_VERNEED)) return needs;
  const strings = offsetOf(segments, dynamic.get(DT_STRTAB) ?? 0);
  const name = (index: number) => program.toString('latin1', strings + index, program.indexOf(0, strings + index));
  let need = offsetOf(segments, dynamic.get(DT_VERNEED) ?? 0);
  for (let left = dynamic.get(DT_VERNEEDNUM) ?? 0; left > 0; left--) {
    const versions: string[] = [];
    let version = need + program.readUInt32LE(need + 8);
    for (let more = program.readUInt16LE(need + 2); more > 0; more--) {
      versions.push(name(program.readUInt32LE(version + 8)));
      version += program.readUInt32LE(version + 12);
    }
    needs.set(name(program.readUInt32LE(need + 4)), versions);
    need += program.readUInt32LE(need + 12);
  }
  return needs;
}

/**
 * Returns a copy of `program` without debugging data and with another note.
 *
 * The note follows the last segment, and the zeros of that segment become bytes of the file. No segment moves and no
 * header is added, so the copy meets the same requirements of kernels as the original: segments fit pages of 64 KiB,
 * which Linux on GH200 may have, and headers are at the place that Linux before 5.18 expects. Existing notes stay,
 * before the new one.
 */
export function withNote(program: Buffer, owner: string, content: Buffer): Buffer {
  const segments = segmentsOf(program);
  const loaded = segments.filter(({ type }) => type === PT_LOAD);
  const last = loaded.toSorted((a, b) => a.address - b.address).at(-1);
  const fileEnd = Math.max(...segments.map(({ offset, fileBytes }) => offset + fileBytes));
  if (last === undefined || last.offset + last.fileBytes !== fileEnd || (last.flags & PF_WRITE) === 0)
    throw new Error('the last segment in memory is not the last segment of the file, or is not the data segment');
  const notes = only(segments, PT_NOTE);
  const start = last.offset + aligned(last.memoryBytes + last.address) - last.address;
  const before = program.subarray(notes.offset, notes.offset + notes.fileBytes);
  const added = Buffer.concat([padded(before), noteOf(owner, content)]);
  const made = Buffer.alloc(start + added.length);
  program.copy(made, 0, 0, fileEnd);
  added.copy(made, start);
  const end = BigInt(made.length - last.offset);
  for (const field of [32, 40]) made.writeBigUInt64LE(end, last.header + field);
  made.writeBigUInt64LE(BigInt(start), notes.header + 8);
  const address = BigInt(last.address + start - last.offset);
  for (const field of [16, 24]) made.writeBigUInt64LE(address, notes.header + field);
  for (const field of [32, 40]) made.writeBigUInt64LE(BigInt(added.length), notes.header + field);
  // Removes the section headers: the linker and the kernel use segments only.
  made.writeBigUInt64LE(0n, 40);
  made.fill(0, 58, 64);
  return made;
}

function noteOf(owner: string, content: Buffer): Buffer {
  const name = Buffer.from(`${owner}\0`);
  const head = Buffer.alloc(12);
  head.writeUInt32LE(name.length, 0);
  head.writeUInt32LE(content.length, 4);
  return Buffer.concat([head, padded(name), padded(content)]);
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(aligned(bytes.length) - bytes.length)]);
}

function aligned(size: number): number {
  return Math.ceil(size / NOTE_ALIGN) * NOTE_ALIGN;
}

function only(segments: readonly Segment[], type: number): Segment {
  const found = segments.filter((segment) => segment.type === type);
  const [one] = found;
  if (one === undefined || found.length > 1)
    throw new Error(`the program has ${found.length} segments of type ${type}, but must have one`);
  return one;
}

function offsetOf(segments: readonly Segment[], address: number): number {
  const holds = (one: Segment) =>
    one.type === PT_LOAD && one.address <= address && address < one.address + one.fileBytes;
  const segment = segments.find(holds);
  if (segment === undefined) throw new Error(`no segment of the file is loaded at ${address.toString(16)}`);
  return address - segment.address + segment.offset;
}

function long(bytes: Buffer, at: number): number {
  return Number(bytes.readBigUInt64LE(at));
}
