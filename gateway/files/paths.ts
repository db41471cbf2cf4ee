const RESOURCES = /^\/v1\/(?:files|uploads|batches)(?:\/|$)/;

/** True for files and batches, which the gateway answers itself; every other POST below /v1 is for a model. */
export function isResourcePath(path: string): boolean {
  return RESOURCES.test(path);
}
