#include <stdio.h>
#define LIST_MAX(a) \
    ((a) + 1)

struct list;

struct list {
    struct list *next;
};

static const int sizes[] = { 1, 2 };

/* Appends. */
struct list *
list_append(struct list *head);

int list_length(const struct list *head)
{
    int n = 0;
    while (head) { n++; head = head->next; }
    return list_max(n);
}
