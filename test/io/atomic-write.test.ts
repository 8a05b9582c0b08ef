// Files that appear whole or not at all: what is in their place before, links, folders that cannot be made.
import { execFileSync } from 'node:child_process'
import { lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { makeFolder, writeFileAtomic } from '#lib/io/atomic-write.js'

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

t.test('a link stays a link', async t => {
  const dir = t.testdir({ disk: { model: 'old' } })
  const link = path.join(dir, 'link')
  symlinkSync(path.join(dir, 'disk/model'), link)
  await writeFileAtomic(link, bytes('new'))
  t.ok(lstatSync(link).isSymbolicLink())
  t.equal(readFileSync(path.join(dir, 'disk/model'), 'utf8'), 'new')
})

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
