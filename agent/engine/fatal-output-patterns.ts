/**
 * Recognizes output lines after which an engine computes nothing any more, although its process may live for hours. A
 * broken CUDA context stays broken, and a collective operation that timed out has lost its group.
 */
import { errorText } from '../../shared/text/error-text.ts';

interface FatalPatterns {
  /** Returns the text that shows a fatal error in the line, or undefined. */
  find(line: string): string | undefined;
}

/**
 * Prefixes that loggers put before a message: `(EngineCore_DP0 pid=7)`, `[rank0]:`, `[E1120 10:11:12.5
 * ProcessGroupNCCL.cpp:616]`, `ERROR 11-20 10:11:12 [core.py:708]`, `0:` of srun --label. INFO is not among them: with
 * request logging on, an INFO line contains a user's prompt, and a prompt that contains "CUDA error" must not end a
 * node.
 */
const DECORATION =
  /^(?:\s+|\([^()]{1,100}\)|\[(?:[^[\]]|\[[^[\]]{0,40}\]){1,200}\]:?|(?:ERROR|CRITICAL|FATAL)\b:?|\d{2,4}[-/]\d\d(?:[-/]\d\d)?\b|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{1,5}:(?=\s))/;

/** A level in a prefix such as `[2025-11-20 10:11:12 INFO]`, `(WARNING)` or `[W1120 10:11:12.5 file.cpp:616]`. */
const HARMLESS_LEVEL = /(?:^|[\s[(|,:])(?:DEBUG|INFO|WARN|WARNING)(?=$|[\s\])|,:])|^\[[IW](?:\d{4})? /i;

/** Maximum number of prefixes before a message. Real lines have about five. */
const DECORATIONS_MAX = 12;

/**
 * An exception's name with its module, such as `torch.AcceleratorError: ` or `c10::Error: `, or the text that libstdc++
 * prints before an exception.
 */
const EXCEPTION = String.raw`(?:what\(\):\s+)?(?:[A-Za-z_][\w.:]*(?:Error|Exception):\s+)?`;

/**
 * Messages of fatal errors, matched after the prefixes. Sources: PyTorch's ProcessGroupNCCL.cpp and CUDAException, and
 * NCCL's nccl.h.
 */
const MESSAGES: readonly RegExp[] = [
  // Example: RuntimeError: CUDA error: an illegal memory access was encountered
  new RegExp(`^${EXCEPTION}CUDA (?:driver )?error: (?!out of memory|invalid device ordinal)`),
  // Example: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1970, unhandled cuda error
  new RegExp(`^${EXCEPTION}NCCL error(?: in)?: `),
  new RegExp(`^${EXCEPTION}NCCL communicator was aborted`),
  new RegExp(`^${EXCEPTION}nccl(?:UnhandledCuda|System|Remote|Internal)Error\\b`),
  // Example: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=…, OpType=ALLREDUCE, …)
  /^Watchdog caught collective operation timeout: /,
  /^(?:Some NCCL operations have failed or timed out|To avoid data inconsistency, we are taking the entire process down)/,
  /^Process group watchdog thread terminated with exception: /,
];

/** A line without any of these words cannot match, so most lines are skipped cheaply. */
const HINT = /cuda|nccl|watchdog/i;

export const BUILT_IN: FatalPatterns = {
  find(line) {
    if (!HINT.test(line)) return undefined;
    const message = withoutDecoration(line);
    return MESSAGES.some((pattern) => pattern.test(message)) ? message : undefined;
  },
};

function withoutDecoration(line: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the colors of a terminal
  let rest = line.replace(/\u001b\[[0-9;]*m/g, '');
  for (let n = 0; n < DECORATIONS_MAX; n++) {
    const found = DECORATION.exec(rest)?.[0];
    if (!found) break;
    if (HARMLESS_LEVEL.test(found)) return '';
    rest = rest.slice(found.length);
  }
  return rest;
}

/** Maximum number of patterns of one agent. */
const PATTERNS_MAX = 64;
const PATTERN_MAX_CHARS = 1024;

/**
 * The built-in patterns, and those of `--fatal-pattern`, which may match anywhere in a line. `none` drops all patterns
 * before it, including the built-in ones.
 * @throws Error with a message for the user
 */
export function fatalPatterns(texts: readonly string[]): FatalPatterns {
  const none = texts.lastIndexOf('none');
  const own = texts.slice(none + 1).map(compiled);
  if (own.length > PATTERNS_MAX) throw new Error(`--fatal-pattern: at most ${PATTERNS_MAX} are allowed`);
  const before = none < 0 ? BUILT_IN : undefined;
  return {
    find: (line) => before?.find(line) ?? (own.some((pattern) => pattern.test(line)) ? line : undefined),
  };
}

function compiled(text: string): RegExp {
  if (text.length > PATTERN_MAX_CHARS) throw new Error(`--fatal-pattern: longer than ${PATTERN_MAX_CHARS} characters`);
  try {
    const pattern = new RegExp(text);
    // A pattern that matches the empty string matches every line.
    if (pattern.test('')) throw new Error('it matches every line');
    return pattern;
  } catch (error) {
    throw new Error(`--fatal-pattern "${text}": ${errorText(error)}`);
  }
}
