/** Engines that the check found outside of the PATH: in Python environments, modules and Apptainer images. */
import { shellQuoted } from '../host/shell-words.ts';

export const ENGINE_NAMES = ['vllm', 'sglang', 'lmdeploy'] as const;
type EngineName = (typeof ENGINE_NAMES)[number] | 'llama-server';

export interface FoundEngine {
  engine: EngineName;
  kind: 'environment' | 'module' | 'image';
  /** Directory with programs, name of the module, or path of the image. */
  at: string;
}

/** @param all the values of a name in the check's output */
export function foundEngines(all: (name: string) => string[]): FoundEngine[] {
  const environments = all('environment').flatMap((line): FoundEngine[] => {
    const [, engine, at] = /^(\S+) (\/.+)$/.exec(line) ?? [];
    const known = engineIn(engine ?? '');
    return known === undefined || at === undefined ? [] : [{ engine: known, kind: 'environment', at }];
  });
  const named = (kind: 'module' | 'image') =>
    all(kind).flatMap((at): FoundEngine[] => {
      const engine = engineIn(kind === 'image' ? at.replace(/^.*\//, '') : at);
      return engine === undefined ? [] : [{ engine, kind, at }];
    });
  // Sites list modules by rising version.
  return [...environments, ...named('module').toReversed(), ...named('image')];
}

function engineIn(name: string): EngineName | undefined {
  if (/llama[.-]?(?:cpp|server)/i.test(name)) return 'llama-server';
  return ENGINE_NAMES.find((one) => name.toLowerCase().includes(one));
}

interface EngineChoice {
  /** Shell line that runs before the engine. */
  setup: string | undefined;
  image: string | undefined;
  /** A line for the user about the choice. */
  said: string;
}

/**
 * Chooses an engine that is not on the PATH; undefined if there is none that the wish allows.
 * @param wanted `--engine`, or `llama-server` for a GGUF file
 */
export function chooseFound(
  { engines, programs }: { engines: readonly FoundEngine[]; programs: ReadonlySet<string> },
  wanted: string | undefined,
): (EngineChoice & { engine: EngineName }) | undefined {
  const fits = ({ engine, kind }: FoundEngine) =>
    (wanted === undefined ? engine !== 'llama-server' : engine === wanted) &&
    // llama.cpp's images have different programs.
    (kind !== 'image' || (programs.has('apptainer') && engine !== 'llama-server'));
  const found = engines.find(fits);
  if (found === undefined) return undefined;
  const { engine, kind, at } = found;
  const said = `using ${engine} of the ${kind} ${at}`;
  if (kind === 'image') return { engine, setup: undefined, image: at, said };
  return { engine, setup: kind === 'module' ? `module load ${shellQuoted(at)}` : entering(at), image: undefined, said };
}

/** A virtual environment has a script for it. For conda's, the PATH is enough. */
function entering(bin: string): string {
  const [script, path] = [shellQuoted(`${bin}/activate`), shellQuoted(bin)];
  return `if [ -e ${script} ]; then . ${script}; else export PATH=${path}:"$PATH"; fi`;
}

/** The line that puts weights into the user's directory for large files, unless there is a cache. */
export function cacheSetup(site: { scratch: string | undefined; hasCache: boolean }): string | undefined {
  const { scratch, hasCache } = site;
  return scratch === undefined || hasCache ? undefined : `export HF_HOME=${shellQuoted(`${scratch}/huggingface`)}`;
}
