declare module 'mnist' {
  const digits: Record<number, { readonly raw: number[] }>
  export default digits
}
