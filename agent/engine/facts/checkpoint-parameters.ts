/**
 * Counts a checkpoint's parameters from the headers of its safetensors files: 8 bytes with the header's length, then
 * JSON with the type and shape of each tensor (https://github.com/huggingface/safetensors, "Format").
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { readAt, withRegularFile } from './open-regular-file.ts';

/** Maximum number of files of one checkpoint. DeepSeek-V3 has 163. */
const FILES_MAX = 512;
/** Maximum size of one header. A model of 128 experts and 94 layers in one file has about 6 MiB. */
const HEADER_MAX_BYTES = 16 * 1024 * 1024;
/** Maximum size of all headers of a checkpoint, which are read one after the other. */
const HEADERS_MAX_BYTES = 128 * 1024 * 1024;

const tensorSchema = z.object({ dtype: z.string(), shape: z.array(z.number().int().min(0)).max(8) });

/** Tensors that are part of the quantization and no parameters. */
const NOT_WEIGHTS = /(scale|scales|scale_inv|scale_2|zero_point|zeros|qzeros|g_idx|weight_shape|absmax|quant_map)$/;

/** @param bits bits per quantized weight; undefined: the checkpoint is not quantized */
export async function checkpointParameters(folder: string, bits: number | undefined): Promise<number | undefined> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.safetensors')).sort();
  if (names.length === 0 || names.length > FILES_MAX) return undefined;
  let left = HEADERS_MAX_BYTES;
  let total = 0;
  for (const name of names) {
    const header = await readHeader(join(folder, name), Math.min(left, HEADER_MAX_BYTES));
    const tensors = header === undefined ? undefined : tryParseJson(header);
    if (header === undefined || typeof tensors !== 'object' || tensors === null) return undefined;
    left -= header.length;
    const count = sumOf(tensors, bits);
    if (count === undefined) return undefined;
    total += count;
  }
  return Number.isSafeInteger(total) && total > 0 ? total : undefined;
}

function readHeader(path: string, maxBytes: number): Promise<string | undefined> {
  return withRegularFile(path, async (file) => {
    const head = await readAt(file, 0, 8);
    if (head.length < 8) return undefined;
    const length = head.readBigUInt64LE();
    if (length > BigInt(maxBytes)) return undefined;
    const header = await readAt(file, 8, Number(length));
    return header.length === Number(length) ? header.toString('utf8') : undefined;
  });
}

function sumOf(tensors: object, bits: number | undefined): number | undefined {
  let total = 0;
  for (const [name, value] of Object.entries(tensors)) {
    if (name === '__metadata__' || NOT_WEIGHTS.test(name)) continue;
    const tensor = tensorSchema.safeParse(value).data;
    if (tensor === undefined) return undefined;
    total += tensor.shape.reduce((product, size) => product * size, 1) * weightsIn(tensor.dtype, bits);
  }
  return total;
}

/** Quantized weights of less than 8 bits are packed into bytes or 32-bit words. */
function weightsIn(dtype: string, bits: number | undefined): number {
  if (bits === undefined || bits >= 8) return 1;
  if (dtype === 'I32' || dtype === 'U32') return 32 / bits;
  return dtype === 'U8' || dtype === 'I8' ? 8 / bits : 1;
}
