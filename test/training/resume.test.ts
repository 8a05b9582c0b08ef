// A training that is killed at any moment and started again ends with the bits and the log of one that was not; of two
// in one folder the second is refused. KILLS is how many times one is killed (npm run nightly: 50).
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readEvents } from '#lib/training/log.js'
import { backends } from '../fixtures/backends.js'
import { randomGenerator } from '../fixtures/values/random.js'

const root = path.resolve(import.meta.dirname, '../..')
const script = path.join(root, 'test/fixtures/training-child.js')
const backend = backends.includes('cpu') ? 'cpu' : 'js'
const seed = Date.now() % 2 ** 31
const random = randomGenerator(seed)

interface Place {
  readonly folder: string
  readonly result: string
}

interface Outcome {
  readonly pid: number
  readonly code: number | null
  readonly signal: string | null
  readonly steps: number[]
  readonly stderr: string
}

/** Runs the training; calls `onStep` with each step that it prints, and with what sends it a signal. */
function run(
  { folder, result }: Place,
  onStep?: (step: number, send: (signal: NodeJS.Signals) => void) => void,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, NODE_OPTIONS: '' }
    const child = spawn(process.execPath, [script, folder, result, backend], { cwd: root, env })
    const pid = child.pid!
    const send = (signal: NodeJS.Signals): void => {
      child.kill(signal)
    }
    let [text, stderr, told] = ['', '', 0]
    const steps = (): number[] => text.split('\n').slice(0, -1).map(Number)
    child.stdout.on('data', data => {
      text += data
      for (; told < steps().length; told++) onStep?.(steps()[told]!, send)
    })
    child.stderr.on('data', data => {
      stderr += data
    })
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ pid, code, signal, steps: steps(), stderr }))
  })
}

/** Kills the training a moment after a step: anywhere in the next ones, or while a checkpoint is written. */
function runAndKill(place: Place, at: number, delay: number): Promise<Outcome> {
  return run(place, (step, send) => {
    if (step === at) setTimeout(send, delay, 'SIGKILL')
  })
}

const placeIn = (dir: string, name: string): Place => ({
  folder: path.join(dir, name),
  result: path.join(dir, `${name}.bin`),
})

/** What a log says that does not depend on time and place. */
async function logOf({ result }: Place): Promise<unknown[]> {
  const events = await readEvents(`${result}.jsonl`)
  return events.map(({ step, epoch, loss, learningRate, gradientNorm, checkpoint }) => {
    return [step, epoch, loss, learningRate, gradientNorm, checkpoint && path.basename(checkpoint)]
  })
}

const checkpointsOnly = ({ folder }: Place): string[] =>
  readdirSync(folder).filter(name => !/^step-\d{8}\.safetensors$/.test(name))

t.test('killed and resumed', async t => {
  const dir = t.testdir()
  const straight = placeIn(dir, 'straight')
  t.equal((await run(straight)).steps.length, 6 * 13)
  const expected = { bytes: readFileSync(straight.result), log: await logOf(straight) }
  t.equal(expected.log.length, 6 * 13)
  t.comment(`seed ${seed}`)

  const expectSame = async (place: Place, what: string): Promise<void> => {
    const { code, stderr } = await run(place)
    t.equal(code, 0, stderr)
    t.ok(readFileSync(place.result).equals(expected.bytes), `${what}: the same bytes`)
    t.same(await logOf(place), expected.log, `${what}: the same log`)
    t.same(checkpointsOnly(place), [], `${what}: nothing is left over`)
  }
  const often = placeIn(dir, 'often')
  for (let kill = 0, from = 5; kill < 3; kill++, from += 22) {
    const at = from + Math.floor(20 * random())
    const { steps, signal } = await runAndKill(often, at, 8 * random())
    t.equal(signal, 'SIGKILL', `killed at step ${at}`)
    if (kill > 0) t.ok(steps[0]! > 1, `went on at step ${steps[0]}`)
  }
  await expectSame(often, 'killed three times')

  for (let kill = 3; kill < Number(process.env.KILLS ?? 0); kill++) {
    const place = placeIn(dir, `kill-${kill}`)
    const [at, delay] = [1 + Math.floor(70 * random()), 12 * random()]
    const { signal } = await runAndKill(place, at, delay)
    t.equal(signal, 'SIGKILL')
    await expectSame(place, `kill ${kill + 1}, ${delay.toFixed(1)} ms after step ${at}`)
  }
})

t.test('of trainings in one folder, one trains', async t => {
  const dir = t.testdir()
  const place = placeIn(dir, 'shared')
  const straight = placeIn(dir, 'straight')
  await run(straight)
  let late: Promise<Outcome> | undefined
  const first = await run(place, (step, send) => {
    if (step !== 3) return
    send('SIGSTOP')
    late = run({ ...place, result: path.join(dir, 'late.bin') }).finally(() => send('SIGCONT'))
  })
  t.equal(first.code, 0, first.stderr)
  const refused = new RegExp(`shared is in use by process ${first.pid} since .*: wait for its end`)
  t.match(await late, { code: 1, steps: [], stderr: refused })
  t.match(await late, { stderr: /ERR_BUSY/ })
  t.ok(readFileSync(place.result).equals(readFileSync(straight.result)), 'the first one is not disturbed')
  t.same(await logOf(place), await logOf(straight))

  const together = placeIn(dir, 'together')
  const outcomes = await Promise.all(Array.from({ length: 4 }, () => run(together)))
  // One that begins when another has ended finds nothing left to do.
  t.same(
    outcomes.map(({ steps }) => steps.length).sort((a, b) => b - a),
    [6 * 13, 0, 0, 0],
  )
  for (const { code, stderr } of outcomes) if (code !== 0) t.match(stderr, /is in use by process \d+ since/)
  t.ok(readFileSync(together.result).equals(readFileSync(straight.result)), 'with the same bytes')
  t.same(checkpointsOnly(together), [])
})
