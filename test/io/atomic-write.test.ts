// Files that appear whole or not at all: what is in their place before, links, folders that cannot be made.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { makeFolder, writeFileAtomic } from '#lib/io/atomic-write.js'
import { transfer } from '../fixtures/values/odd-values.js'

const bytes = (text: string): Uint8Array[] => [Buffer.from(text)]

t.test('an older file stays until the new one is complete', async t => {
  const dir = t.testdir({ file: 'old' })
  const file = path.join(dir, 'file')
  function* broken(): Generator<Uint8Array> {
    yield Buffer.from('half')
    throw new Error('broken')
  }
  await t.rejects(writeFileAtomic(file, broken()), {
    code: 'ERR_IO',
    message: /could not write .*file: broken/,
  })
  t.equal(readFileSync(file, 'utf8'), 'old')
  t.strictSame(readdirSync(dir), ['file'], 'and nothing else is left')
  await writeFileAtomic(file, bytes('new'))
  t.equal(readFileSync(file, 'utf8'), 'new')
})

t.test('memory that is handed on while it is written', async t => {
  const dir = t.testdir({ file: 'old' })
  const file = path.join(dir, 'file')
  const chunks = Array.from({ length: 3 }, (_, i) => new Uint8Array(10_000_019).fill(i + 1))
  await writeFileAtomic(file, chunks)
  t.ok(readFileSync(file).every((byte, i) => byte === 1 + Math.floor(i / 10_000_019)))
  t.equal(statSync(file).size, 3 * 10_000_019)
  writeFileSync(file, 'old')
  for (const lost of [2, 0]) {
    const writing = writeFileAtomic(file, chunks)
    transfer(chunks[lost]!)
    await t.rejects(writing, {
      code: 'ERR_DISPOSED',
      message: /what is written lies in memory that has been/,
    })
    t.equal(readFileSync(file, 'utf8'), 'old')
  }
  t.strictSame(readdirSync(dir), ['file'])
})

t.test('a link stays a link', async t => {
  const dir = t.testdir({ disk: { model: 'old' } })
  const link = path.join(dir, 'link')
  symlinkSync(path.join(dir, 'disk/model'), link)
  await writeFileAtomic(link, bytes('new'))
  t.ok(lstatSync(link).isSymbolicLink())
  t.equal(readFileSync(path.join(dir, 'disk/model'), 'utf8'), 'new')
})

t.test(
  'a file keeps its mode; a new one has that of the umask',
  { skip: process.platform === 'win32' },
  async t => {
    const dir = t.testdir()
    const modeOf = (name: string): number => statSync(path.join(dir, name)).mode & 0o7777
    for (const mode of [0o600, 0o400, 0o640, 0o664, 0o444, 0o755]) {
      const name = mode.toString(8)
      writeFileSync(path.join(dir, name), 'old')
      chmodSync(path.join(dir, name), mode)
      await writeFileAtomic(path.join(dir, name), bytes('new'))
      t.equal(modeOf(name), mode, name)
      t.equal(readFileSync(path.join(dir, name), 'utf8'), 'new')
    }
    const umask = process.umask(0o027)
    try {
      await writeFileAtomic(path.join(dir, 'fresh'), bytes('new'))
    } finally {
      process.umask(umask)
    }
    t.equal(modeOf('fresh'), 0o640)
  },
)

t.test(
  'nobody else can read a file before it has its mode',
  { skip: process.platform === 'win32' },
  async t => {
    const dir = t.testdir({ secret: 'old' })
    chmodSync(path.join(dir, 'secret'), 0o400)
    const modes: number[] = []
    function* watched(): Generator<Uint8Array> {
      yield Buffer.from('half')
      for (const name of readdirSync(dir)) modes.push(statSync(path.join(dir, name)).mode & 0o077)
    }
    await writeFileAtomic(path.join(dir, 'secret'), watched())
    t.same(modes, [0, 0])
  },
)

t.test(
  'a file keeps its owner, as far as the system lets us',
  { skip: process.getuid?.() !== 0 },
  async t => {
    const dir = t.testdir({ file: 'old' })
    const file = path.join(dir, 'file')
    const replaced = async (uid: number, gid: number, mode: number): Promise<Record<string, number>> => {
      chownSync(file, uid, gid)
      chmodSync(file, mode)
      await writeFileAtomic(file, bytes('new'))
      const found = statSync(file)
      return { uid: found.uid, gid: found.gid, mode: found.mode & 0o7777 }
    }
    t.same(await replaced(1234, 2345, 0o640), { uid: 1234, gid: 2345, mode: 0o640 })
    chownSync(dir, 1234, 1234)
    // The steps of a process of user 1234 in group 1234, who may not give files away.
    const { seteuid, setegid } = process
    setegid?.(1234)
    seteuid?.(1234)
    try {
      await writeFileAtomic(file, bytes('mine'))
    } finally {
      seteuid?.(0)
      setegid?.(0)
    }
    const found = statSync(file)
    t.same(
      [found.uid, found.gid, found.mode & 0o7777],
      [1234, 1234, 0o600],
      'another group gets nothing of 640',
    )
  },
)

t.test('what is no file is not replaced', { skip: process.platform === 'win32' }, async t => {
  const dir = t.testdir({ folder: {} })
  const pipe = path.join(dir, 'pipe')
  execFileSync('mkfifo', [pipe])
  await t.rejects(writeFileAtomic(pipe, bytes('x')), { code: 'ERR_IO', message: /it is no ordinary file/ })
  t.ok(lstatSync(pipe).isFIFO())
  await t.rejects(writeFileAtomic(path.join(dir, 'folder'), bytes('x')), { message: /it is a folder/ })
})

t.test('folders', async t => {
  const dir = t.testdir({ file: '' })
  const deep = path.join(dir, 'a/b/c')
  await makeFolder(deep)
  await makeFolder(deep)
  await Promise.all(['x/y', 'x/z', 'x'].map(name => makeFolder(path.join(dir, name))))
  t.strictSame(readdirSync(path.join(dir, 'x')).sort(), ['y', 'z'])
  const refused = (folder: string, message: RegExp) =>
    t.rejects(makeFolder(folder), { code: 'ERR_IO', message }, folder)
  await refused(path.join(dir, 'file'), /it is a file, not a folder/)
  await refused(path.join(dir, 'file/a/b'), /a part of the path is a file/)
  mkdirSync(path.join(dir, 'link'))
  writeFileSync(path.join(dir, 'link/x'), '')
  if (process.platform === 'linux')
    await refused('/proc/a/b', /could not write \/proc\/a\/b: no such file or folder/)
})
