#!/usr/bin/perl -w
# Plays the listeners of the tests: `player.pl ROLE [FILE]`.
#
# Appends a line to the file that EFFECTS names, if any, for each delivery: the listener, the newest
# message and the attempt. The line is on disk before the answer. The trace context of a delivery goes to
# standard error. A role that holds answers waits until FILE exists, whose name may contain the number of
# the request: `let-go-{n}`.
#
# In Perl without modules, because the tests start it thousands of times: Python takes five times as long
# to start. The module `warnings` takes a third of a start, and the option does the same.

use strict;

my $NS      = "urn:example:talk";
my %ANSWERS = (ping => "pong", work => "worked", hold => "held");
my $role    = shift // die "usage: player.pl ROLE [FILE]\n";
my $file    = shift;

my $effects;
if ($ENV{EFFECTS}) {
    require Fcntl;
    my $how = Fcntl::O_WRONLY() | Fcntl::O_CREAT() | Fcntl::O_APPEND() | Fcntl::O_SYNC();
    sysopen($effects, $ENV{EFFECTS}, $how, 0666) or die "$ENV{EFFECTS}: $!";
}

# The text between the first `begin` and the next `end`; undef if there is none.
sub between {
    my ($text, $begin, $end) = @_;
    my $from = index($text, $begin);
    return undef if $from < 0;
    $from += length $begin;
    my $to = index($text, $end, $from);
    return $to < 0 ? undef : substr($text, $from, $to - $from);
}

# The id and the payload of each message of a delivery.
sub messages_of {
    my (undef, @messages) = split /<e:message id="/, shift;
    return map { [between($_, "", '"'), between($_, "</e:meta>", "</e:message>")] } @messages;
}

sub note {
    my ($message, $attempt) = @_;
    return if !$effects;
    my $line = "$role $message $attempt\n";
    syswrite($effects, $line) == length $line or die "a line was cut short";
}

sub numbered {
    my ($name, $request) = @_;
    my $number = between($request, "<n>", "</n>");
    return "<$name xmlns=\"$NS\"><n>$number</n></$name>";
}

sub answer {
    my ($request, @more) = @_;
    my ($name) = $request =~ /^<([^\s>]+)/;
    if ($name eq "say") {
        return $request =~ s{<(/?)say}{<$1said}gr;
    }
    if ($name eq "order") {
        return numbered(@more ? "done" : "work", $request);
    }
    if ($name eq "hold") {
        die "without FILE, `$role` cannot hold an answer\n" if !defined $file;
        my $number = between($request, "<n>", "</n>");
        my $awaited = $file =~ s/\{n\}/$number/gr;
        select(undef, undef, undef, 0.01) until -e $awaited;
    }
    return numbered($ANSWERS{$name} // die("no answer to `$name`"), $request);
}

sub handle {
    my ($frame) = @_;
    return if $frame =~ /^<cancel/;
    my $traced = between($frame, ' traceparent="', '"');
    syswrite(STDERR, "traced $traced\n") if defined $traced;
    my @messages = messages_of($frame);
    note($messages[-1][0], between($frame, ' attempt="', '"'));
    my $reply = answer(map { $_->[1] } @messages) . "\0";
    while (length $reply) {
        my $written = syswrite(STDOUT, $reply) // die "standard output: $!";
        substr($reply, 0, $written) = "";
    }
}

# Whatever PERL_UNICODE contains.
binmode $_ for *STDIN, *STDOUT, *STDERR;
my $rest = "";
while (sysread(STDIN, $rest, 65536, length $rest)) {
    my @frames = split /\0/, $rest, -1;
    $rest = pop @frames;
    handle($_) for @frames;
}
