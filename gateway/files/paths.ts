const RESOURCES = /^\/v1\/(?:files|uploads|batches)(?:\/|$)/;

/** Files and batches are answered here; every other POST under /v1 goes to a model. */
export function isResourcePath(path: string): boolean {
  return RESOURCES.test(path);
}
