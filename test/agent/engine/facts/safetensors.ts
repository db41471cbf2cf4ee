export type Tensors = Record<string, { dtype: string; shape: number[] }>;

/** A safetensors file without its weights, which readers of the header do not need. */
export function safetensors(tensors: Tensors): Buffer {
  const header = Buffer.from(JSON.stringify({ __metadata__: { format: 'pt' }, ...tensors }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header]);
}
