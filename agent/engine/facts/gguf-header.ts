/**
 * Reads the header of a GGUF file: facts about the model, then the shapes of its tensors
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Only little-endian files of versions 2 and 3.
 */
import type { FileHandle } from 'node:fs/promises';
import { withRegularFile } from './open-regular-file.ts';

interface GgufFacts {
  /** Name of the format of most weights, such as `Q4_K_M`. */
  precision: string | undefined;
  /** Maximum length of prompt and response together with which the model was trained, in tokens. */
  context: number | undefined;
  /** Undefined if the file is one part of several, or its list of tensors is not valid. */
  parameters: number | undefined;
}

/** Maximum size of a header. The vocabulary of 256,000 words is the largest part and has about 10 MiB. */
const HEADER_MAX_BYTES = 64 * 1024 * 1024;
const READ_BYTES = 256 * 1024;
const FIELDS_MAX = 4096;
const TENSORS_MAX = 100_000;
const NAME_MAX_BYTES = 1024;
/** Maximum size of a text that is kept. Longer ones, such as chat templates, are skipped. */
const TEXT_MAX_BYTES = 256;
const DIMENSIONS_MAX = 8;
/** Maximum number of texts in all lists. A vocabulary of 256,000 words has about as many merges. */
const LISTED_MAX = 2_000_000;

const TEXT = 8;
const LIST = 9;
/** Bytes of the values of fixed size, by type. */
const SIZES: Readonly<Record<number, number>> = {
  ...{ 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 },
};
const UNSIGNED = new Set([0, 2, 4, 10]);

/** Undefined if the file cannot be read, or its header is not valid. Never rejects. */
export function readGgufHeader(path: string): Promise<GgufFacts | undefined> {
  return withRegularFile(path, (file) => read(new GgufReader(file)));
}

async function read(reader: GgufReader): Promise<GgufFacts | undefined> {
  if ((await reader.bytes(4)).toString('latin1') !== 'GGUF') return undefined;
  const version = await reader.unsigned(4);
  if (version !== 2 && version !== 3) return undefined;
  const tensors = await reader.unsigned(8);
  const fields = await reader.unsigned(8);
  if (tensors > TENSORS_MAX || fields > FIELDS_MAX) return undefined;
  const found = new Map<string, string | number>();
  for (let n = 0; n < fields; n++) {
    const name = await reader.text(NAME_MAX_BYTES);
    const value = await reader.value(await reader.unsigned(4));
    if (name !== undefined && value !== undefined) found.set(name, value);
  }
  const architecture = found.get('general.architecture');
  const format = found.get('general.file_type');
  const context = found.get(`${architecture}.context_length`);
  const parts = found.get('split.count');
  return {
    precision: typeof format === 'number' ? FORMATS[format] : undefined,
    context: typeof context === 'number' && context > 0 ? context : undefined,
    parameters: typeof parts === 'number' && parts > 1 ? undefined : await countParameters(reader, tensors),
  };
}

/** Undefined if the list of tensors is not valid; the fields before it are used in any case. */
async function countParameters(reader: GgufReader, tensors: number): Promise<number | undefined> {
  let total = 0;
  try {
    for (let n = 0; n < tensors; n++) {
      await reader.text(NAME_MAX_BYTES);
      const dimensions = await reader.unsigned(4);
      if (dimensions > DIMENSIONS_MAX) return undefined;
      let elements = 1;
      for (let at = 0; at < dimensions; at++) elements *= await reader.unsigned(8);
      total += elements;
      await reader.skip(4 + 8); // type and offset
    }
  } catch {
    return undefined;
  }
  return Number.isSafeInteger(total) && total > 0 ? total : undefined;
}

class GgufError extends Error {}

/** Reads the file in blocks, from the start to at most HEADER_MAX_BYTES. */
class GgufReader {
  readonly #file: FileHandle;
  #block = Buffer.alloc(0);
  /** Position in the file of the block's first byte. */
  #start = 0;
  #at = 0;
  /** Number of texts that the lists so far contain. */
  #listed = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** @throws GgufError at the end of the file, or beyond HEADER_MAX_BYTES */
  async bytes(length: number): Promise<Buffer> {
    if (this.#at + length > this.#block.length) await this.#load(length);
    this.#at += length;
    return this.#block.subarray(this.#at - length, this.#at);
  }

  async #load(length: number): Promise<void> {
    this.#start += this.#at;
    this.#at = 0;
    if (this.#start + length > HEADER_MAX_BYTES) throw new GgufError('the header is too long');
    const block = Buffer.alloc(Math.max(length, READ_BYTES));
    const { bytesRead } = await this.#file.read(block, 0, block.length, this.#start);
    if (bytesRead < length) throw new GgufError('the file ends within its header');
    this.#block = block.subarray(0, bytesRead);
  }

  async skip(length: number): Promise<void> {
    if (this.#at + length <= this.#block.length) {
      this.#at += length;
      return;
    }
    this.#start += this.#at + length;
    this.#at = 0;
    this.#block = Buffer.alloc(0);
    if (this.#start > HEADER_MAX_BYTES) throw new GgufError('the header is too long');
  }

  async unsigned(size: number): Promise<number> {
    const bytes = await this.bytes(size);
    if (size < 8) return bytes.readUIntLE(0, size);
    const value = bytes.readBigUInt64LE();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new GgufError('a number is too large');
    return Number(value);
  }

  /** Undefined if the text has more than `maxBytes` bytes; it is skipped. */
  async text(maxBytes: number): Promise<string | undefined> {
    const length = await this.unsigned(8);
    if (length <= maxBytes) return (await this.bytes(length)).toString('utf8');
    await this.skip(length);
    return undefined;
  }

  /** Returns a short text or an unsigned number. Other values are skipped, and undefined is returned. */
  async value(type: number): Promise<string | number | undefined> {
    if (type === TEXT) return this.text(TEXT_MAX_BYTES);
    if (type === LIST) return this.#skipList();
    const size = SIZES[type];
    if (size === undefined) throw new GgufError(`type ${type} is unknown`);
    if (UNSIGNED.has(type)) return this.unsigned(size);
    await this.skip(size);
    return undefined;
  }

  async #skipList(): Promise<undefined> {
    const type = await this.unsigned(4);
    const length = await this.unsigned(8);
    const size = SIZES[type];
    if (size !== undefined) await this.skip(length * size);
    // No known file has lists of lists.
    else if (type !== TEXT) throw new GgufError(`a list of type ${type}`);
    else {
      this.#listed += length;
      if (this.#listed > LISTED_MAX) throw new GgufError('the lists are too long');
      for (let n = 0; n < length; n++) await this.text(0);
    }
    return undefined;
  }
}

/** Names of `general.file_type`, from `llama_ftype` in llama.cpp's include/llama.h. */
const FORMATS: Readonly<Record<number, string>> = {
  ...{ 0: 'F32', 1: 'F16', 2: 'Q4_0', 3: 'Q4_1', 7: 'Q8_0', 8: 'Q5_0', 9: 'Q5_1', 10: 'Q2_K', 11: 'Q3_K_S' },
  ...{ 12: 'Q3_K_M', 13: 'Q3_K_L', 14: 'Q4_K_S', 15: 'Q4_K_M', 16: 'Q5_K_S', 17: 'Q5_K_M', 18: 'Q6_K' },
  ...{ 19: 'IQ2_XXS', 20: 'IQ2_XS', 21: 'Q2_K_S', 22: 'IQ3_XS', 23: 'IQ3_XXS', 24: 'IQ1_S', 25: 'IQ4_NL' },
  ...{ 26: 'IQ3_S', 27: 'IQ3_M', 28: 'IQ2_S', 29: 'IQ2_M', 30: 'IQ4_XS', 31: 'IQ1_M', 32: 'BF16' },
  ...{ 36: 'TQ1_0', 37: 'TQ2_0', 38: 'MXFP4_MOE', 39: 'NVFP4', 40: 'Q1_0' },
};
