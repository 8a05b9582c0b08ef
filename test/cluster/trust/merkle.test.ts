// Merkle trees against the vectors of RFC 6962's reference implementation, and against plain recursion.
import { createHash } from 'node:crypto'
import t from 'tap'
import { emptyRoot, isConsistent, isIncluded, leafHash, MerkleTree } from '#lib/cluster/trust/merkle.js'

/** Leaves and roots that implementations of Certificate Transparency test with. */
const leaves = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
].map(hex => Buffer.from(hex, 'hex'))
const roots = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
]

const sha = (...parts: Uint8Array[]) => createHash('sha256').update(Buffer.concat(parts)).digest()

/** The definition in RFC 6962, 2.1. */
function plainRoot(data: readonly Uint8Array[]): Buffer {
  if (data.length === 0) return sha()
  if (data.length === 1) return sha(Buffer.of(0), data[0]!)
  let k = 1
  while (k * 2 < data.length) k *= 2
  return sha(Buffer.of(1), plainRoot(data.slice(0, k)), plainRoot(data.slice(k)))
}

t.test('roots of known leaves', async t => {
  const tree = new MerkleTree()
  t.equal(tree.root.toString('hex'), 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  for (const [i, leaf] of leaves.entries()) {
    tree.append(leafHash(leaf))
    t.equal(tree.root.toString('hex'), roots[i])
  }
  for (const [i, root] of roots.entries()) t.equal(tree.rootAt(i + 1).toString('hex'), root)
  const path = (index: number, size: number) =>
    tree.inclusionProof(index, size).map(hash => hash.toString('hex'))
  t.same(path(0, 8), [
    '96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
    '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
    '6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
  ])
  const consistency = tree.consistencyProof(6, 8).map(hash => hash.toString('hex'))
  t.same(consistency, [
    '0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a',
    'ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0',
    'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  ])
})

t.test('every proof of trees up to 33 leaves holds, and no other one', async t => {
  const data = Array.from({ length: 33 }, (_, i) => Buffer.from(`leaf ${i}`))
  const tree = new MerkleTree()
  for (const leaf of data) tree.append(leafHash(leaf))
  const wrong: string[] = []
  for (let size = 0; size <= data.length; size++) {
    const root = tree.rootAt(size)
    if (!root.equals(plainRoot(data.slice(0, size)))) wrong.push(`root ${size}`)
    for (let index = 0; index < size; index++) {
      const proof = tree.inclusionProof(index, size)
      if (!isIncluded(leafHash(data[index]!), index, size, root, proof))
        wrong.push(`leaf ${index} of ${size}`)
      if (isIncluded(leafHash(data[index]!), (index + 1) % size, size, root, proof) && size > 1)
        wrong.push(`another index than ${index} of ${size}`)
    }
    for (let old = 0; old <= size; old++) {
      const proof = tree.consistencyProof(old, size)
      const oldRoot = tree.rootAt(old)
      if (!isConsistent(old, size, oldRoot, root, proof)) wrong.push(`${old} in ${size}`)
      if (isConsistent(old, size, leafHash(oldRoot), root, proof))
        wrong.push(`another root of ${old} in ${size}`)
      if (isConsistent(old, size, oldRoot, leafHash(root), proof) && old > 0) wrong.push(`another ${size}`)
      if (isConsistent(old, size, oldRoot, root, [...proof, root]))
        wrong.push(`a longer proof of ${old} in ${size}`)
      if (proof.length > 0 && isConsistent(old, size, oldRoot, root, proof.slice(1)))
        wrong.push(`a shorter proof`)
    }
  }
  t.same(wrong, [])
  for (const size of [-1, 34, 1.5, Number.NaN]) t.throws(() => tree.rootAt(size), { code: 'ERR_RANGE' })
  t.throws(() => tree.inclusionProof(5, 5), { code: 'ERR_RANGE' })
  t.throws(() => tree.consistencyProof(6, 5), { code: 'ERR_RANGE' })
  t.notOk(isConsistent(-1, 2, emptyRoot, emptyRoot, []))
  t.notOk(isIncluded(emptyRoot, 2, 2, emptyRoot, []))
})
