/** Writes the header of a GGUF file (version 3), as llama.cpp's converter does. */

export type GgufField =
  | { name: string; type: 'text'; value: string }
  | { name: string; type: 'u16' | 'u32' | 'f32'; value: number }
  | { name: string; type: 'texts'; value: string[] }
  | { name: string; type: 'i32s'; value: number[] };

interface Tensor {
  name: string;
  shape: number[];
}

const TYPES = { u16: 2, u32: 4, i32: 5, f32: 6, text: 8, list: 9 } as const;

export function ggufHeader(fields: readonly GgufField[], tensors: readonly Tensor[]): Buffer {
  return Buffer.concat([
    Buffer.from('GGUF'),
    u32(3),
    u64(tensors.length),
    u64(fields.length),
    ...fields.flatMap((field) => [text(field.name), ...fieldValue(field)]),
    ...tensors.flatMap(({ name, shape }) => [text(name), u32(shape.length), ...shape.map(u64), u32(12), u64(0)]),
  ]);
}

function fieldValue(field: GgufField): Buffer[] {
  switch (field.type) {
    case 'text':
      return [u32(TYPES.text), text(field.value)];
    case 'u16': {
      const bytes = Buffer.alloc(2);
      bytes.writeUInt16LE(field.value);
      return [u32(TYPES.u16), bytes];
    }
    case 'u32':
      return [u32(TYPES.u32), u32(field.value)];
    case 'f32': {
      const bytes = Buffer.alloc(4);
      bytes.writeFloatLE(field.value);
      return [u32(TYPES.f32), bytes];
    }
    case 'texts':
      return [u32(TYPES.list), u32(TYPES.text), u64(field.value.length), ...field.value.map(text)];
    case 'i32s':
      return [u32(TYPES.list), u32(TYPES.i32), u64(field.value.length), ...field.value.map(u32)];
  }
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
