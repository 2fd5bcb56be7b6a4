/**
 * The one error type of the project.
 *
 * `code` is stable (tests and programs may match on it); the message has the form
 * "where: expected …, got …" and `next` says what the user can do about it.
 */
export class RlvrError extends Error {
  readonly code: string;
  readonly next: string | undefined;

  constructor(code: string, message: string, options: { next?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "RlvrError";
    this.code = code;
    this.next = options.next;
  }
}

/** One-line text of anything that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
