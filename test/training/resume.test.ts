// A training that is killed at any moment and started again ends with the bits of one that was not.
import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { randomGenerator } from '../fixtures/random.js'

const root = path.resolve(import.meta.dirname, '../..')
const script = path.join(root, 'test/fixtures/training-child.js')
const backend = backends.includes('cpu') ? 'cpu' : 'js'

/** Runs the training; kills it when it prints `killAt`. Returns the steps it printed. */
function run(
  folder: string,
  result: string,
  killAt = 0,
): Promise<{ steps: number[]; signal: string | null }> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, NODE_OPTIONS: '' }
    const child = spawn(process.execPath, [script, folder, result, backend], { cwd: root, env })
    let [text, errors] = ['', '']
    child.stdout.on('data', data => {
      text += data
      if (killAt > 0 && text.split('\n').includes(String(killAt))) child.kill('SIGKILL')
    })
    child.stderr.on('data', data => {
      errors += data
    })
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code !== 0 && signal === null) reject(new Error(errors))
      else resolve({ steps: text.trim().split('\n').map(Number), signal })
    })
  })
}

t.test('killed and resumed', async t => {
  const dir = t.testdir()
  const place = (name: string) => [path.join(dir, name), path.join(dir, `${name}.bin`)] as const
  const straight = place('straight')
  t.equal((await run(...straight)).steps.length, 6 * 13)
  const expected = readFileSync(straight[1])
  const seed = Date.now() % 2 ** 31
  const random = randomGenerator(seed)
  const killed = place('killed')
  mkdirSync(killed[0])
  for (let kill = 0, from = 5; kill < 3; kill++, from += 22) {
    const at = from + Math.floor(20 * random())
    const { steps, signal } = await run(...killed, at)
    t.equal(signal, 'SIGKILL', `killed at step ${at} of seed ${seed}`)
    if (kill > 0) t.ok(steps[0]! > 1, `went on at step ${steps[0]}`)
  }
  const { steps } = await run(...killed)
  t.ok(steps[0]! > 40 && steps.at(-1) === 78)
  t.ok(readFileSync(killed[1]).equals(expected), 'the same bytes')
  const leftovers = readdirSync(killed[0]).filter(
    name => !/^step-\d{8}\.safetensors$/.test(name) && !name.endsWith('.tmp'),
  )
  t.same(leftovers, [])
})
