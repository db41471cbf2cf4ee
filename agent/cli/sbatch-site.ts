/** The gateway's profile of this cluster, for `otela-agent sbatch`. Flags override it. */
import type { JobRequest } from '../../shared/slurm/job-script.ts';
import { gpusBySize, type SiteProfile, siteModel, siteProfileSchema } from '../../shared/slurm/site-profile.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { GATEWAY_SETTINGS, gatewayUrl, TOKEN_SETTINGS } from '../config/gateways-config.ts';
import { readSecretFile } from '../config/secret-file.ts';
import type { Env, GivenSettings } from '../config/setting.ts';
import { httpGet, responseText } from '../weights/sources/http-get.ts';

const ANSWER_MS = 10_000;
const PROFILE_MAX_CHARS = 256 * 1024;
const TOKEN_FILE = '~/.otela-token';

/** Undefined if there is no token, or if the gateway has no profile. A failure is reported, because flags may suffice. */
export async function siteProfile(
  settings: GivenSettings,
  env: Env,
  tell: (line: string) => void,
): Promise<SiteProfile | undefined> {
  const last = (name: string) => settings.get(name)?.values.at(-1);
  const [gateway] = settings.get(GATEWAY_SETTINGS.gateways.env)?.values ?? [];
  if (gateway === undefined) return undefined;
  let token: string;
  try {
    const warn = (line: string) => tell(`otela-agent: ${line}`);
    token =
      last(TOKEN_SETTINGS.token.env) ??
      readSecretFile('--token-file', last(TOKEN_SETTINGS.tokenFile.env) ?? TOKEN_FILE, { env, warn });
  } catch {
    return undefined; // the job reads the token, and its node may have another home directory
  }
  const url = gatewayUrl(gateway);
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/agent/site`;
  const secret = { authorization: `Bearer ${token}` };
  try {
    const answer = await httpGet({ url, secret, env, signal: AbortSignal.timeout(ANSWER_MS) });
    return siteProfileSchema.parse(parseJson(await responseText(answer, PROFILE_MAX_CHARS)));
  } catch (error) {
    const why = errorText(error);
    if (!/answers 404/.test(why)) tell(`otela-agent: the gateway's profile of this cluster is not used: ${why}`);
    return undefined;
  }
}

/** The flags, completed by the profile. */
export function withSite(
  given: ReadonlyMap<string, readonly string[]>,
  site: SiteProfile | undefined,
): ReadonlyMap<string, readonly string[]> {
  if (site === undefined) return given;
  const model = given.get('model')?.at(-1)?.trim() ?? '';
  const own = siteModel(site, model);
  const bySize = site.gpu_memory_gib === undefined ? undefined : gpusBySize(model, site.gpu_memory_gib);
  const gpus = own?.gpus ?? bySize;
  const container = given.get('container')?.at(-1) ?? site.container ?? 'none';
  const type = site.gpu_type === undefined ? '' : `${site.gpu_type}:`;
  const known: Record<string, string | number | undefined> = {
    partition: site.partition,
    account: site.account,
    qos: site.qos,
    constraint: site.constraint,
    mem: site.mem,
    cpus: site.cpus,
    time: own?.time ?? site.time,
    engine: own?.engine,
    container: site.container,
    image: container === 'none' ? undefined : site.image,
    gpus: gpus === undefined && type === '' ? undefined : `${type}${gpus ?? 1}`,
  };
  const all = new Map(given);
  for (const [flag, value] of Object.entries(known))
    if (value !== undefined && !given.has(flag)) all.set(flag, [String(value)]);
  const options = site.sbatch_options ?? [];
  if (options.length > 0) all.set('sbatch-option', [...options, ...(given.get('sbatch-option') ?? [])]);
  return all;
}

/** What no flag can say. */
export function fromSite(site: SiteProfile | undefined): Pick<JobRequest, 'modules' | 'scratch' | 'proxy'> {
  const { modules, scratch, proxy } = site ?? {};
  return {
    ...(modules !== undefined && { modules }),
    ...(scratch !== undefined && { scratch }),
    ...(proxy !== undefined && { proxy }),
  };
}
