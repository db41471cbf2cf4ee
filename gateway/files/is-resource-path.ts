const RESOURCES = /^\/v1\/(?:files|uploads|batches)(?:\/|$)/;

/**
 * True for the paths of files, uploads and batches, which the gateway answers itself. Every other POST below /v1 is a
 * request to a model.
 */
export function isResourcePath(path: string): boolean {
  return RESOURCES.test(path);
}
