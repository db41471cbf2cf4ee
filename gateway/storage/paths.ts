/** Where a host that is a process of its own reports on the data directory, and the header with the secret that both share. */
export const STORAGE_PATH = '/host/storage';
export const SECRET_HEADER = 'x-otela-host-secret';
