// fp4-test.ts: tests a way to FP4 tensor cores in a child process. An instruction that fails there ruins the child's CUDA
// context and not the user's, and a kernel that never ends is killed.
import { type ExecFileException, execFile } from 'node:child_process'
import path from 'node:path'
import { packageFolder } from '../core/package-folder.js'

/** Our kernel (linear_fp4_mma.cu), or cuBLASLt's. */
export type Fp4Way = 'own' | 'cublaslt'

/** What is wrong with the products of a way; '' when they equal the CPU's, null when there are none. */
export type Fp4Problem = string | null

/** Milliseconds for a process to start, open the GPU and form a product. */
const defaultDeadline = 30_000

/** The script of the child process. */
function program(): string {
  const folder = packageFolder()
  if (folder === undefined) throw new Error('the package is not there, only a bundle of it')
  return path.join(folder, 'dist', 'kernels', 'fp4-child.js')
}

/** Signals of a failure, not of somebody who ended the process. */
const crashes = ['SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGILL', 'SIGSEGV', 'SIGTRAP']

/**
 * Tests a way of the GPU with a uuid.
 * @throws Error when there is no answer: no process could be started, or the GPU not be opened in it
 */
export async function testFp4(uuid: string, way: Fp4Way, deadline = defaultDeadline): Promise<Fp4Problem> {
  if (process.getBuiltinModule?.('node:sea')?.isSea())
    throw new Error('a single executable starts no scripts')
  const { failure, stdout } = await run([program(), uuid, way, String(deadline + 5000)], deadline)
  const { problem, untested } = parseAnswer(stdout)
  if (isFp4Problem(problem)) return problem
  if (typeof untested === 'string') throw new Error(untested)
  if (failure?.killed) return `failed: its test did not end in ${deadline / 1000} s`
  const signal = failure?.signal
  if (signal && crashes.includes(signal)) return `failed: its test ended with ${signal}`
  const code = failure?.code ?? 0
  throw new Error(`the process of the test ended with ${signal ?? code}`, { cause: failure })
}

/** Whether a value that was read is an {@link Fp4Problem}. */
export const isFp4Problem = (value: unknown): value is Fp4Problem =>
  value === null || typeof value === 'string'

interface Ended {
  readonly failure: ExecFileException | null
  readonly stdout: string
}

/** Runs this program's runtime as Node.js: it may be Electron. Throws when no process may be started. */
function run(args: readonly string[], timeout: number): Promise<Ended> {
  const env = {
    ...process.env,
    ELECTRON_RUN_AS_NODE: '1',
    NODE_OPTIONS: '', // no debugger, and nothing that a program preloads
    DGX_SPARK_NVFP4: '0', // a runtime that starts the program anew instead of the script starts nothing in turn
  }
  const options = { env, timeout, killSignal: 'SIGKILL', windowsHide: true } as const
  return new Promise(resolve => {
    execFile(process.execPath, args, options, (failure, stdout) => resolve({ failure, stdout }))
  })
}

/** The last line, if it is an answer of fp4-child.ts. */
function parseAnswer(stdout: string): { problem?: unknown; untested?: unknown } {
  try {
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') ?? {}
  } catch {
    return {}
  }
}
