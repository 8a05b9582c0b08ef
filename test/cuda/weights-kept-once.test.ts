// Weights of a GPU that computes in the memory of the machine: kept once where it reads what JavaScript sees as fast as memory of
// its own, else copied. On the fake driver.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import t from 'tap'
import { writeModel } from '../../bench/gpu-static/plans.js'
import { matrixElements } from '../../bench/random-llama.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda', 'nvml'])
t.teardown(() => fakeDriver.dispose())

const sizes = { hidden: 512, inner: 1408, layers: 1, heads: 8, kvHeads: 2, headSize: 64, vocabulary: 320 }
/** Bytes of one of the three matrices between hidden and inner in bf16; no other memory has so many. */
const matrix = 2 * sizes.hidden * sizes.inner
/** Milliseconds that slow kinds of memory take longer. */
const slower = 50

/** Anonymous memory of a process in bytes; 0 when it is gone. */
function anonymousBytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return 1024 * Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0)
  } catch {
    return 0
  }
}

const folder = t.testdir()

/** Generates a token on a GPU with a model in a file: the calls that gave memory to the matrices. */
async function generate(profile: object) {
  const { env, lines } = machine(fakeDriver, profile)
  const file = await writeModel(folder, 'BF16', sizes)
  const program = new URL('../fixtures/text/decode-child.js', import.meta.url).pathname
  const child = spawn(process.execPath, [program, 'BF16', JSON.stringify({ prompt: 4, tokens: 1 }), file], {
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [status] = await once(child, 'exit')
  t.equal(status, 0)
  const calls = lines('alloc').map(line => line.split(' '))
  return calls.filter(([, , bytes]) => Number(bytes) === matrix).map(([, call]) => call)
}

t.test('kept once where the GPU reads them as fast', async t => {
  const inPlace = await generate({ ...integrated, delay: { cuMemAlloc: slower, cuMemHostAlloc: slower } })
  t.strictSame(inPlace, Array(3).fill('cuMemAllocManaged'))
})

t.test('copied where memory of its own is faster', async t => {
  const delay = { cuMemAllocManaged: slower, cuMemHostAlloc: slower }
  t.strictSame(await generate({ ...integrated, delay }), Array(3).fill('cuMemAlloc'))
  t.strictSame(await generate(discrete), Array(3).fill('cuMemAlloc'), 'a GPU with memory of its own')
})

/**
 * Bytes of anonymous memory that load and first run of each model take at most, in a process that has run a small one before.
 * @param precision - that the weights are rounded to
 */
async function peaksOf(precision: string, small: string, files: readonly string[]): Promise<number[]> {
  const { env } = machine(fakeDriver, {
    ...integrated,
    delay: { cuMemAllocManaged: slower, cuMemHostAlloc: slower },
  })
  const program = new URL('../fixtures/text/load-child.js', import.meta.url).pathname
  const child = spawn(process.execPath, [program, small, ...files], {
    env: { ...process.env, NODE_OPTIONS: '', DGX_SPARK_PRECISION: precision, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const peaks: number[] = []
  await Promise.race([once(child.stdout, 'data'), ended])
  for (const _ of files) {
    const before = anonymousBytes(child.pid!)
    let peak = before
    const poll = setInterval(() => {
      peak = Math.max(peak, anonymousBytes(child.pid!))
    }, 3)
    child.stdin.write('go on\n')
    const [left] = await Promise.race([once(child.stdout, 'data'), ended])
    clearInterval(poll)
    t.ok(Number(left) < 1 << 20, `${left} bytes stay on the device`)
    peaks.push(peak - before)
  }
  child.stdin.end('go on\n')
  t.strictSame(await ended, [0, null])
  return peaks
}

const sanitized = process.env.LD_PRELOAD?.includes('san') && 'a sanitizer has memory of its own'

t.test('load and first run take 1.1 times the weights at most', { skip: sanitized || false }, async t => {
  const few = { ...sizes, hidden: 1024, inner: 2048, layers: 2, heads: 16 }
  const many = { ...few, layers: 12 }
  const elements = matrixElements(many) - matrixElements(few)
  const all = { few, many, small: { ...sizes, layers: many.layers } }
  const fileOf = async (format: 'BF16' | 'F32', name: keyof typeof all): Promise<string> =>
    writeModel(await mkdtemp(`${folder}/`), format, all[name])
  const small = await fileOf('BF16', 'small')
  const [bf16, f32] = [
    [await fileOf('BF16', 'few'), await fileOf('BF16', 'many')],
    [await fileOf('F32', 'few'), await fileOf('F32', 'many')],
  ]
  const held = await peaksOf('bf16', small, bf16)
  const rounded = await peaksOf('bf16', small, f32)
  const plain = await peaksOf('fp32', small, f32)
  // What a process needs for any model is no part of the difference.
  const check = (what: string, [base, peak]: readonly number[], bytes: number): void => {
    const more = peak! - base!
    t.ok(more > 0.5 * bytes && more <= 1.1 * bytes, `${what}: ${more} bytes more for ${bytes} of weights`)
  }
  check('bf16 in a file', held, 2 * elements)
  check('f32 in a file, rounded to bf16', rounded, 2 * elements)
  check('f32 in a file', plain, 4 * elements)
})
