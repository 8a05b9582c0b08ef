// Locks: who has one, whose are void, and that nobody else ever gets one.
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { lockFile, lockFolder } from '#lib/io/lock.js'
import { runScript, scriptResult } from '../fixtures/child.js'

const locksIn = (folder: string): string[] => readdirSync(folder).filter(name => name.endsWith('.lock'))
const linux = process.platform === 'linux'

/** Takes the lock of a folder in a process of its own, which then runs `rest`. */
const taking = (folder: string, rest: string): string => `
  const { lockFolder } = await import('#lib/io/lock.js')
  const lock = await lockFolder(${JSON.stringify(folder)})
  ${rest}`

t.test('one at a time, in a process', async t => {
  const folder = path.join(t.testdir(), 'a/b')
  const lock = await lockFolder(folder)
  const message = new RegExp(`b is in use by process ${process.pid}, this one, since 20.*: wait for its end`)
  await t.rejects(lockFolder(folder), { code: 'ERR_BUSY', message })
  lock.release()
  lock.release()
  t.same(readdirSync(folder), [])
  {
    using again = await lockFolder(folder)
    t.ok(again)
  }
  const tries = await Promise.allSettled(Array.from({ length: 8 }, () => lockFolder(folder)))
  const won = tries.filter(({ status }) => status === 'fulfilled')
  t.equal(won.length, 1)
  t.equal(locksIn(folder).length, 1)
})

t.test('files have locks of their own', async t => {
  const dir = t.testdir()
  using one = await lockFile(path.join(dir, 'one'))
  using other = await lockFile(path.join(dir, 'other'))
  using folder = await lockFolder(dir)
  t.ok(one && other && folder)
  await t.rejects(lockFile(path.join(dir, 'one')), { code: 'ERR_BUSY', message: /one is in use by/ })
  await t.rejects(lockFile(path.join(dir, 'none/x')), { code: 'ERR_IO', message: /none\/x: no such file/ })
})

t.test('a process that ends gives its locks back; one that is killed leaves void ones', async t => {
  const folder = t.testdir()
  for (const rest of ['process.exit(0)', 'throw new Error()', '']) {
    await runScript(taking(folder, rest))
    t.same(readdirSync(folder), [], rest)
  }
  const { signal } = await runScript(taking(folder, "process.kill(process.pid, 'SIGKILL')"))
  t.equal(signal, 'SIGKILL')
  t.equal(locksIn(folder).length, 1)
  const lock = await lockFolder(folder)
  t.equal(locksIn(folder).length, 1, 'the void one is gone')
  lock.release()
})

t.test('a worker that is terminated leaves a void one', { skip: !linux }, async t => {
  const folder = t.testdir()
  const code = `import { parentPort } from 'node:worker_threads'; ${taking(folder, 'parentPort.postMessage(0); setInterval(() => {}, 1e6)')}`
  const result = await scriptResult(`
    import { Worker } from 'node:worker_threads'
    const { lockFolder } = await import('#lib/io/lock.js')
    const code = ${JSON.stringify(code)}
    const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(code.replaceAll('#lib', import.meta.resolve('#lib/io/lock.js').replace('/io/lock.js', '')))))
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    const busy = await lockFolder(${JSON.stringify(folder)}).catch(error => error.code)
    await worker.terminate()
    const lock = await lockFolder(${JSON.stringify(folder)})
    lock.release()
    console.log(JSON.stringify(busy))`)
  t.equal(result, 'ERR_BUSY')
})

t.test('locks of others', async t => {
  const folder = t.testdir()
  const own = await lockFolder(folder)
  const record = JSON.parse(readFileSync(path.join(folder, locksIn(folder)[0]!), 'utf8'))
  own.release()
  t.match(record, { pid: process.pid, host: hostname() })
  const write = (changes: object | string, age = 0): void => {
    const file = path.join(folder, '.dgx-spark.0-00.lock')
    writeFileSync(file, typeof changes === 'string' ? changes : JSON.stringify({ ...record, ...changes }))
    utimesSync(file, Date.now() / 1000 - age, Date.now() / 1000 - age)
  }
  const refused = (message: RegExp) => t.rejects(lockFolder(folder), { code: 'ERR_BUSY', message })
  const granted = async (what: string): Promise<void> => {
    const lock = await lockFolder(folder)
    t.equal(locksIn(folder).length, 1, what)
    lock.release()
  }
  write({ pid: process.ppid, began: '' })
  await refused(new RegExp(`in use by process ${process.ppid} since`))
  if (linux) {
    write({ pid: process.ppid, began: '1' })
    await granted('the process has another beginning: its id was given again')
    write({ processIds: 'pid:[1]' })
    await refused(/if it is gone, remove .*0-00\.lock/)
  }
  write({ host: 'elsewhere' })
  await refused(/of elsewhere since .*: if it is gone, remove .*0-00\.lock/)
  write({ host: 'elsewhere' }, 301)
  await granted('another host has not touched its lock for five minutes')
  for (const text of ['', '{', 'null', '5', '{"pid":-1}', '{"pid":"x","host":1}']) {
    write(text)
    await refused(/an unknown host/)
    write(text, 301)
    await granted(`damaged: ${text}`)
  }
  const dead = spawn(process.execPath, ['--version'])
  await new Promise(resolve => dead.on('close', resolve))
  write({ pid: dead.pid! })
  await granted('the process is dead')
})

t.test('many processes that find the lock of a dead one', async t => {
  const dir = t.testdir({ folder: {} })
  const [folder, done] = [path.join(dir, 'folder'), path.join(dir, 'done')]
  await runScript(taking(folder, "process.kill(process.pid, 'SIGKILL')"))
  const rest = `console.log('got it')
    const { existsSync } = await import('node:fs')
    while (!existsSync(${JSON.stringify(done)})) await new Promise(resolve => setTimeout(resolve, 20))
    lock.release()`
  let ended = 0
  const outcomes = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const outcome = await runScript(taking(folder, rest))
      if (++ended === 5) writeFileSync(done, '')
      return outcome
    }),
  )
  t.equal(outcomes.filter(({ stdout }) => stdout.includes('got it')).length, 1, 'one gets it')
  t.equal(outcomes.filter(({ stderr }) => stderr.includes('ERR_BUSY')).length, 5)
  t.same(readdirSync(folder), [])
})
