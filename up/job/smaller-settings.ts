/** The next smaller settings for an engine that ran out of memory, as flags of `otela up`. Pure. */

/** The flag of each engine that bounds the tokens of a request, for which the engine reserves memory. */
const LENGTH_FLAGS: Readonly<Record<string, string>> = {
  vllm: '--max-model-len',
  sglang: '--context-length',
  lmdeploy: '--session-len',
  llama: '--ctx-size',
};
/** Without a given length an engine reserves memory for the model's own, which is 32k to 128k today. */
const LENGTH_FIRST = 8_192;
/** A shorter context is of no use in a chat. */
const LENGTH_MIN = 2_048;

/** vLLM says which length would fit: "the estimated maximum model length is 12345". */
const FITS = /estimated maximum model length is (\d{2,8})|tokens that can be stored in KV cache \((\d{2,8})\)/;

interface TriedSettings {
  /** A key of LENGTH_FLAGS; undefined if the engine is the user's own command. */
  engine: string | undefined;
  arguments: readonly string[];
  gpus: number;
  /** The most GPUs of a node of the partition. */
  gpusPerNode: number;
}

/** @param said the last lines of the engine */
export function smallerSettings(tried: TriedSettings, said: string): string {
  const ways = [...shorter(tried, said), ...moreGpus(tried)];
  const rest = 'a quantized model, or a partition with larger GPUs (--gpu KIND)';
  return `The model needs more memory than the GPUs have. Try ${ways.length === 0 ? rest : `${ways.join(' or ')}; otherwise ${rest}`}.`;
}

function shorter({ engine = '', arguments: given }: TriedSettings, said: string): string[] {
  const flag = LENGTH_FLAGS[engine];
  if (flag === undefined) return [];
  const [, estimated, stored] = FITS.exec(said) ?? [];
  const fits = Number(estimated ?? stored);
  const last = lengthOf(given, flag);
  const next = fits > 0 ? Math.floor(fits / 256) * 256 : last === undefined ? LENGTH_FIRST : Math.floor(last / 2);
  const isSmaller = next >= LENGTH_MIN && (last === undefined || next < last);
  return isSmaller ? [`--engine-argument=${flag}=${next}`] : [];
}

/** The value of a flag that is one word (`--flag=8192`) or two. */
function lengthOf(words: readonly string[], flag: string): number | undefined {
  const at = words.findLastIndex((word) => word === flag || word.startsWith(`${flag}=`));
  const text = words[at]?.startsWith(`${flag}=`) ? words[at].slice(flag.length + 1) : words[at + 1];
  const length = at < 0 ? Number.NaN : Number(text);
  return length > 0 ? length : undefined;
}

/** Engines split a model over a power of two. */
function moreGpus({ gpus, gpusPerNode }: TriedSettings): string[] {
  const next = 2 ** (Math.floor(Math.log2(gpus)) + 1);
  return next <= gpusPerNode ? [`--gpus ${next}`] : [];
}
