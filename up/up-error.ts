/** An expected failure of `otela up`: what happened, and what the user can do. */
export class UpError extends Error {
  override name = 'UpError';

  constructor(happened: string, wayOn: string, options?: ErrorOptions) {
    super(`${happened}\n${wayOn}`, options);
  }
}

/** The host does not exist any more, so connecting again is useless. */
export class HostGoneError extends UpError {
  override name = 'HostGoneError';
}
