// Weights of a GPU that computes in the memory of the machine: kept once where it reads what JavaScript sees as fast as memory of
// its own, else copied. On the fake driver.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import t from 'tap'
import { writeModel } from '../../bench/gpu-static/plans.js'
import type { LlamaFormat } from '../../bench/random-llama.js'
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

/** Generates a token on a GPU with a model in a file: the calls that gave memory to the matrices, and the most anonymous memory. */
async function generate(profile: object, all = sizes, format: LlamaFormat = 'BF16') {
  const { env, lines } = machine(fakeDriver, profile)
  const file = await writeModel(folder, format, all)
  const program = new URL('../fixtures/text/decode-child.js', import.meta.url).pathname
  const child = spawn(process.execPath, [program, format, JSON.stringify({ prompt: 4, tokens: 1 }), file], {
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  let peak = 0
  const poll = setInterval(() => {
    peak = Math.max(peak, anonymousBytes(child.pid!))
  }, 3)
  const [status] = await once(child, 'exit')
  clearInterval(poll)
  t.equal(status, 0)
  const calls = lines('alloc').map(line => line.split(' '))
  return { peak, calls: calls.filter(([, , bytes]) => Number(bytes) === matrix).map(([, call]) => call) }
}

t.test('kept once where the GPU reads them as fast', async t => {
  const inPlace = await generate({ ...integrated, delay: { cuMemAlloc: slower, cuMemHostAlloc: slower } })
  t.strictSame(inPlace.calls, Array(3).fill('cuMemAllocManaged'))
})

t.test('copied where memory of its own is faster', async t => {
  const delay = { cuMemAllocManaged: slower, cuMemHostAlloc: slower }
  t.strictSame((await generate({ ...integrated, delay })).calls, Array(3).fill('cuMemAlloc'))
  t.strictSame((await generate(discrete)).calls, Array(3).fill('cuMemAlloc'), 'a GPU with memory of its own')
})

for (const format of ['BF16', 'F32', 'Q4_K'] as const)
  t.test(`load and first run take 1.1 times weights of ${format} at most`, async t => {
    const wide = { ...sizes, hidden: 1024, inner: 3584, heads: 16 }
    const [small, large] = [
      { ...wide, layers: 1 },
      { ...wide, layers: 6 },
    ]
    const bytesOf = async (all: typeof large): Promise<number> => (await stat(await writeModel(folder, format, all))).size
    const profile = { ...integrated, delay: { cuMemAllocManaged: slower, cuMemHostAlloc: slower } }
    const peakOf = async (all: typeof large): Promise<number> => (await generate(profile, all, format)).peak
    const [peaks, weights] = [(await peakOf(large)) - (await peakOf(small)), (await bytesOf(large)) - (await bytesOf(small))]
    console.error(`${format} ${weights} ${(peaks / weights).toFixed(3)} times`)
    t.ok(peaks <= 1.1 * weights, `${peaks} bytes for ${weights} of weights`)
  })
