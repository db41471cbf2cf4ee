import { describe, expect, it } from 'vitest';
import { BUILT_IN, fatalPatterns } from '../../../agent/engine/fatal-output-patterns.ts';
import { LineReader, LOG_LINE_MAX_BYTES } from '../../../agent/engine/line-reader.ts';
import { costBeside } from '../../support/cost.ts';

describe('a line that tells of a broken engine', () => {
  it.each([
    'RuntimeError: CUDA error: an illegal memory access was encountered',
    'torch.AcceleratorError: CUDA error: unspecified launch failure',
    '(EngineCore_DP0 pid=1234) torch.AcceleratorError: CUDA error: an illegal memory access was encountered',
    '(VllmWorker TP1 pid=77) ERROR 11-20 10:11:12 [multiproc_executor.py:511] RuntimeError: CUDA error: device-side assert triggered',
    '\u001b[36m(RayWorkerWrapper pid=4711, ip=10.0.0.2)\u001b[0m RuntimeError: CUDA error: uncorrectable ECC error encountered',
    '[2025-11-20 10:11:12 TP3] RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`',
    '  what():  CUDA error: misaligned address',
    '[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5',
    'ncclUnhandledCudaError: Call to CUDA function failed.',
    'ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.',
    '[rank3]:[E1120 10:11:12.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.',
    '[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800488 milliseconds before timing out.',
    '[rank0]:[E1120 10:11:12.5 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered',
    '[2025-11-20 10:11:12,345] [ERROR] [info.py:7] RuntimeError: CUDA error: unspecified launch failure',
    '0: RuntimeError: NCCL communicator was aborted on rank 0.',
  ])('is found: %s', (line) => {
    expect(BUILT_IN.find(line)).toBeDefined();
  });

  it.each([
    // A prompt in the request log, as vLLM and SGLang write it.
    "INFO 11-20 10:11:12 [logger.py:43] Received request chatcmpl-1: prompt: 'RuntimeError: CUDA error: an illegal memory access was encountered', params: SamplingParams(n=1)",
    "[2025-11-20 10:11:12] Receive: obj=GenerateReqInput(text='CUDA error: unspecified launch failure')",
    '(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/chat/completions?q=CUDA%20error:%20 HTTP/1.1" 200 OK',
    // One request that did not fit: the engine continues.
    'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.50 GiB',
    'RuntimeError: CUDA error: out of memory',
    'nid001:33:44 [0] NCCL INFO Connected all rings',
    'nid001:33:44 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.1<40000> failed : Software caused connection abort',
    'WARNING 11-20 10:11:12 [cuda.py:22] CUDA error: handling is described in the manual',
    '[INFO] CUDA error: my program says this',
    '[2025-11-20 10:11:12 INFO] NCCL error: in a prompt',
    '[2025-11-20 10:11:12,345] [warning] [core.py:708] NCCL error: in a prompt',
    '(WARNING) CUDA error: in a prompt',
    '(EngineCore_DP0 pid=7) [DEBUG|core.py:1] CUDA error: in a prompt',
    '[rank0]:[W1120 10:11:12.5 ProcessGroupNCCL.cpp:616] Process group watchdog thread terminated with exception: x',
    '[I ProcessGroupNCCL.cpp:475] NCCL communicator was aborted on rank 0.',
    'For debugging consider passing CUDA_LAUNCH_BLOCKING=1',
    '',
  ])('is not this one: %s', (line) => {
    expect(BUILT_IN.find(line)).toBeUndefined();
  });

  it('can be named by the operator, beside the built-in ones or instead of them', () => {
    const both = fatalPatterns(['EngineDeadError', 'Xid \\d+']);
    expect(both.find('x NVRM: Xid 79, GPU has fallen off the bus')).toBeDefined();
    expect(both.find('RuntimeError: CUDA error: unspecified launch failure')).toBeDefined();
    const only = fatalPatterns(['a', 'none', 'Xid']);
    expect(only.find('a RuntimeError: CUDA error: unspecified launch failure')).toBeUndefined();
    expect(only.find('Xid')).toBe('Xid');
    expect(fatalPatterns(['none']).find('RuntimeError: CUDA error: unspecified launch failure')).toBeUndefined();
  });

  it.each([
    ['(', /Unterminated|Invalid/],
    ['x'.repeat(1025), /longer than/],
    ['.*', /matches every line/],
    ['', /matches every line/],
  ])('is refused as a pattern that cannot be meant: %s', (pattern, why) => {
    expect(() => fatalPatterns([pattern])).toThrow(why);
  });

  it('costs no time that a consumer could stretch by what stands in the line', () => {
    const find = (texts: readonly string[]) => () => {
      for (const text of texts)
        for (let n = 0; n < 20; n++) BUILT_IN.find(`cuda ${text.repeat(4000)}`.slice(n % 5, LOG_LINE_MAX_BYTES));
    };
    const hostile = ['[', '[x] ', '(a) ', '[[a]', 'CUDA error: ', 'a.b:', '12:', 'ERROR '];
    const ratio = costBeside(find(hostile), find(hostile.map((text) => 'x'.repeat(text.length))));
    expect(ratio).toBeLessThan(50);
  });
});

describe('output cut into lines', () => {
  const read = (chunks: (string | Buffer)[]) => {
    const lines: string[] = [];
    const reader = new LineReader((line) => lines.push(line));
    for (const chunk of chunks) reader.push(Buffer.from(chunk));
    reader.end();
    return lines;
  };

  it('is the same wherever the pipe cut it', () => {
    const text = 'one\ntwo\r\n\n\rthree é\nlast';
    const bytes = Buffer.from(text);
    const whole = read([text]);
    expect(whole).toEqual(['one', 'two', 'three é', 'last']);
    for (let at = 1; at < bytes.length; at++) expect(read([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(whole);
    expect(read([...bytes].map((byte) => Buffer.from([byte])))).toEqual(whole);
  });

  it('keeps the beginning of a line without an end, and nothing more', () => {
    const lines = read([...Array.from({ length: 64 }, () => 'x'.repeat(65_536)), '\nnext\n']);
    expect(lines.map(({ length }) => length)).toEqual([LOG_LINE_MAX_BYTES, 4]);
  });
});
