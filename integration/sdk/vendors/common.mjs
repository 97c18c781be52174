// What the calls to all vendors have in common.
export const question = 'How does basalt cool?';
export const messages = [{ role: 'user', content: question }];

// listed is all that a stream yields.
export async function listed(promise, bare = (chunk) => chunk) {
  const chunks = [];
  for await (const chunk of await promise) {
    chunks.push(bare(chunk));
  }
  return chunks;
}
