/**
 * Variables of the agent's environment that a function's process gets: those that Python, CUDA and model caches need.
 * All others are withheld, because they may contain tokens of unknown services.
 */
const INHERITED_VARIABLES = [
  'PATH',
  'LANG',
  'LC_ALL',
  'TZ',
  'LD_LIBRARY_PATH',
  'CUDA_HOME',
  'CUDA_VISIBLE_DEVICES',
  'ROCR_VISIBLE_DEVICES',
  'HIP_VISIBLE_DEVICES',
  'NVIDIA_VISIBLE_DEVICES',
  'HF_HOME',
  'HF_HUB_CACHE',
  'HF_HUB_OFFLINE',
  'HF_DATASETS_CACHE',
  'TORCH_HOME',
  'XDG_CACHE_HOME',
  'SSL_CERT_FILE',
  'REQUESTS_CA_BUNDLE',
  'OMP_NUM_THREADS',
] as const;

/**
 * @param directory the process's own directory, for its home and temporary files
 * @param packages directory of the packages that the function declares
 */
export function functionEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  directory: string,
  packages?: string,
): Record<string, string> {
  const passed: Record<string, string> = {
    HOME: directory,
    TMPDIR: directory,
    PYTHONUNBUFFERED: '1',
    PYTHONDONTWRITEBYTECODE: '1',
    ...(packages === undefined ? {} : { PYTHONPATH: packages }),
  };
  for (const name of INHERITED_VARIABLES) {
    const value = env[name];
    if (value !== undefined) passed[name] = value;
  }
  return passed;
}
